// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/tableconfig"
)

// settings is a Config that was checked.
type settings struct {
	unitText     string // memory_unit as the operator wrote it, for messages
	unitMiB      uint64
	common       gpuSettings
	perGPU       map[allocator.GPUID]gpuSettings
	include      selection
	ignore       selection
	xids         xidPolicy
	probation    time.Duration
	library      string
	pollInterval time.Duration
	pollTimeout  time.Duration
	table        tableconfig.Config
}

// gpuSettings are those that a GPU may have of its own.
type gpuSettings struct {
	reservedText   string // as the operator wrote it, for messages
	reservedMiB    uint64
	sizeMiB        uint64 // of a GPU that cannot tell; 0 if not configured
	allowUnmanaged bool
}

// of returns what holds for one GPU.
func (s settings) of(id allocator.GPUID) gpuSettings {
	if own, ok := s.perGPU[id]; ok {
		return own
	}
	return s.common
}

// settings checks a configuration without touching a GPU, a file or a network.
// The error names the option and its value.
func (c Config) settings() (settings, error) {
	s := settings{
		unitText: orDefault(c.MemoryUnit, DefaultMemoryUnit),
		library:  c.NVMLLibrary,
		include:  c.Include,
		ignore:   c.Ignore,
		table:    c.Table.WithDefaults(),
	}
	var err error
	if s.unitMiB, err = parseMiB("memory_unit", s.unitText); err != nil {
		return s, err
	}
	if s.unitMiB == 0 {
		return s, fmt.Errorf("memory_unit = %q: a unit must be at least 1MiB", s.unitText)
	}
	if err := c.parseGPUs(&s); err != nil {
		return s, err
	}
	if err := c.parsePeriods(&s); err != nil {
		return s, err
	}
	if s.xids, err = newXidPolicy(c.XidCritical, c.XidIgnored); err != nil {
		return s, err
	}
	for option, list := range map[string]selection{"include": s.include, "ignore": s.ignore} {
		if slices.Contains(list, "") {
			return s, fmt.Errorf(`%s = %q: an empty text selects no GPU; want UUIDs, indexes or models such as "*A100*"`, option, list)
		}
	}
	return s, s.table.Validate()
}

// parseGPUs reads what may differ from GPU to GPU. What a block leaves out is
// as for all.
func (c Config) parseGPUs(s *settings) error {
	all := GPUConfig{ReservedMemory: c.ReservedMemory, MemorySize: c.MemorySize, AllowUnmanaged: &c.AllowUnmanaged}
	var err error
	if s.common, err = all.settings("", gpuSettings{}); err != nil {
		return err
	}
	for uuid, own := range c.GPUs {
		parsed, err := own.settings(fmt.Sprintf("gpu %q: ", uuid), s.common)
		if err != nil {
			return err
		}
		if s.perGPU == nil {
			s.perGPU = map[allocator.GPUID]gpuSettings{}
		}
		s.perGPU[allocator.GPUID(uuid)] = parsed
	}
	return nil
}

func (c GPUConfig) settings(where string, s gpuSettings) (gpuSettings, error) {
	var err error
	if c.ReservedMemory != "" {
		s.reservedText = c.ReservedMemory
		if s.reservedMiB, err = parseMiB(where+"reserved_memory", c.ReservedMemory); err != nil {
			return s, err
		}
	}
	if c.MemorySize != "" {
		if s.sizeMiB, err = parseMiB(where+"memory_size", c.MemorySize); err != nil {
			return s, err
		}
	}
	if c.AllowUnmanaged != nil {
		s.allowUnmanaged = *c.AllowUnmanaged
	}
	return s, nil
}

func (c Config) parsePeriods(s *settings) error {
	for _, p := range []struct {
		option, text, otherwise string
		target                  *time.Duration
	}{
		{"poll_interval", c.PollInterval, DefaultPollInterval, &s.pollInterval},
		{"poll_timeout", c.PollTimeout, DefaultPollTimeout, &s.pollTimeout},
		{"probation", c.Probation, DefaultProbation, &s.probation},
	} {
		var err error
		if *p.target, err = parsePeriod(p.option, orDefault(p.text, p.otherwise)); err != nil {
			return err
		}
	}
	return nil
}

// parseMiB parses a size that must be whole MiB: GiB is a power of 2 and GB one of
// 10, as on the command line.
func parseMiB(option, text string) (uint64, error) {
	const example = `want a size such as "1GiB" or "512MiB"`
	if strings.HasPrefix(strings.TrimSpace(text), "-") {
		return 0, fmt.Errorf("%s = %q: is negative; %s", option, text, example)
	}
	bytes, err := humanize.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s = %q: is not a size; %s", option, text, example)
	}
	if bytes%humanize.MiByte != 0 {
		return 0, fmt.Errorf("%s = %q: is %d bytes, which is not a whole number of MiB; %s", option, text, bytes, example)
	}
	return bytes / humanize.MiByte, nil
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
