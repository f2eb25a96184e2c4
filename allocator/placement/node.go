// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

// Node is the state of one node. CPU is in the unit of the requests: MHz, as in Nomad, or
// thousandths of a core.
type Node struct {
	ID        string // unique; a Decision has it
	Name      string // for messages
	CPU       int    // free
	MemoryMiB int    // free host memory
	GPUs      []GPU

	// Out is why no task may be placed here, "" if tasks may.
	Out string

	// Data is for the caller; Request.Fits may read it.
	Data any
}

// GPU is the state of one GPU, or MIG instance.
type GPU struct {
	ID      string // unique on its node; a Decision has it
	Model   string
	UnitMiB int // memory of one unit
	Units   int // that the GPU is divided into
	Free    int // available units: neither held, reserved nor unhealthy

	// Out is why no task may use it, "" if tasks may.
	Out string

	// Data is for the caller; Ask.Fits may read it.
	Data any
}

// FreeMiB returns the available memory.
func (g GPU) FreeMiB() int {
	if g.Out != "" {
		return 0
	}
	return max(0, g.Free) * g.UnitMiB
}
