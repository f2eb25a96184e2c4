// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"slices"
	"strconv"

	"github.com/ryanuber/go-glob"

	"nomad-gpu-mem/internal/nvml"
)

// selection names GPUs. Each entry is a UUID, an index, or a model in which '*' matches any
// text. The UUID of a GPU also selects its MIG instances.
type selection []string

// has reports whether the selection names the GPU.
func (s selection) has(g nvml.GPU) bool {
	return slices.ContainsFunc(s, func(entry string) bool {
		if entry == g.UUID || entry == g.Parent || entry == strconv.Itoa(g.Index) {
			return true
		}
		return glob.Glob(entry, g.Name)
	})
}

// selects reports whether include and ignore allow the GPU.
func (s settings) selects(g nvml.GPU) bool {
	return (len(s.include) == 0 || s.include.has(g)) && !s.ignore.has(g)
}
