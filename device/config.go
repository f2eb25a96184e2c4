package device

import (
	"fmt"
	"strings"
	"time"

	"github.com/docker/go-units"

	"nomad-gpu-mem/internal/tableconfig"
)

// settings is a Config that was checked.
type settings struct {
	unitText     string // memory_unit as the operator wrote it, for messages
	unitMiB      uint64
	reservedMiB  uint64
	library      string
	pollInterval time.Duration
	pollTimeout  time.Duration
	table        tableconfig.Config
}

// settings checks a configuration without touching a GPU, a file or a network.
// The error names the option and its value.
func (c Config) settings() (settings, error) {
	s := settings{
		unitText: orDefault(c.MemoryUnit, DefaultMemoryUnit),
		library:  c.NVMLLibrary,
		table:    c.Table.WithDefaults(),
	}
	var err error
	if s.unitMiB, err = parseMiB("memory_unit", s.unitText); err != nil {
		return s, err
	}
	if s.unitMiB == 0 {
		return s, fmt.Errorf("memory_unit = %q: a unit must be at least 1MiB", s.unitText)
	}
	if c.ReservedMemory != "" {
		if s.reservedMiB, err = parseMiB("reserved_memory", c.ReservedMemory); err != nil {
			return s, err
		}
	}
	if s.pollInterval, err = parsePeriod("poll_interval", orDefault(c.PollInterval, DefaultPollInterval)); err != nil {
		return s, err
	}
	if s.pollTimeout, err = parsePeriod("poll_timeout", orDefault(c.PollTimeout, DefaultPollTimeout)); err != nil {
		return s, err
	}
	return s, s.table.Validate()
}

// parseMiB parses a size in bytes that must be whole MiB.
func parseMiB(option, text string) (uint64, error) {
	const example = `want a size such as "1GiB" or "512MiB"`
	if strings.HasPrefix(strings.TrimSpace(text), "-") {
		return 0, fmt.Errorf("%s = %q: is negative; %s", option, text, example)
	}
	bytes, err := units.RAMInBytes(text)
	if err != nil || bytes < 0 {
		return 0, fmt.Errorf("%s = %q: is not a size; %s", option, text, example)
	}
	if bytes%units.MiB != 0 {
		return 0, fmt.Errorf("%s = %q: is %d bytes, which is not a whole number of MiB; %s", option, text, bytes, example)
	}
	return uint64(bytes / units.MiB), nil
}

// minPeriod keeps a slip of the pen from becoming a busy loop.
const minPeriod = 10 * time.Millisecond

func parsePeriod(option, text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf(`%s = %q: is not a duration; want one such as "5s"`, option, text)
	}
	if d < minPeriod {
		return 0, fmt.Errorf("%s = %q: must be at least %s", option, text, minPeriod)
	}
	return d, nil
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
