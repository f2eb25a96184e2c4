// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"
	"slices"
	"time"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/quantity"
	"nomad-gpu-mem/internal/tableconfig"
)

// settings is a validated Config.
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

// gpuSettings are settings that may differ between GPUs.
type gpuSettings struct {
	reservedText   string // as the operator wrote it, for messages
	reservedMiB    uint64
	sizeMiB        uint64 // of a GPU that does not report its size; 0 if not configured
	allowUnmanaged bool
}

// of returns the settings of one GPU.
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
	if s.unitMiB, err = quantity.MiB(s.unitText); err != nil {
		return s, fmt.Errorf("memory_unit: %w", err)
	}
	if s.unitMiB == 0 {
		return s, fmt.Errorf("memory_unit: invalid size %q, want at least 1MiB", s.unitText)
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
			return s, fmt.Errorf(`%s = %q: an empty entry selects no GPU; want UUIDs, indexes or models, for example "*A100*"`, option, list)
		}
	}
	return s, s.table.Validate()
}

// parseGPUs reads the gpu blocks. Settings that a block leaves out are those of all GPUs.
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
		if s.reservedMiB, err = quantity.MiB(c.ReservedMemory); err != nil {
			return s, fmt.Errorf("%sreserved_memory: %w", where, err)
		}
	}
	if c.MemorySize != "" {
		if s.sizeMiB, err = quantity.MiB(c.MemorySize); err != nil {
			return s, fmt.Errorf("%smemory_size: %w", where, err)
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
		if *p.target, err = quantity.DurationFrom(orDefault(p.text, p.otherwise), minPeriod); err != nil {
			return fmt.Errorf("%s: %w", p.option, err)
		}
	}
	return nil
}

// minPeriod keeps a mistyped interval from becoming a busy loop.
const minPeriod = 10 * time.Millisecond

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
