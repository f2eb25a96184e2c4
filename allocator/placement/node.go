// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

// Node is what a snapshot says of one node. CPU is in any unit that requests
// use too: MHz, as Nomad counts, or thousandths of a core.
type Node struct {
	ID        string // unique; what a Decision names
	Name      string // for people
	CPU       int    // free
	MemoryMiB int    // free host memory
	GPUs      []GPU

	// Out is why no task may be placed here, "" if tasks may.
	Out string

	// Data is the caller's own; Request.Fits may look at it.
	Data any
}

// GPU is what a snapshot says of one GPU, or MIG instance.
type GPU struct {
	ID      string // unique on its node; what a Decision names
	Model   string
	UnitMiB int // memory of one unit
	Units   int // that the GPU is divided into
	Free    int // units that a task can have: neither held, reserved nor unhealthy

	// Out is why no task may have any of it, "" if tasks may.
	Out string

	// Data is the caller's own; Ask.Fits may look at it.
	Data any
}

// FreeMiB is the memory that tasks can have.
func (g GPU) FreeMiB() int {
	if g.Out != "" {
		return 0
	}
	return max(0, g.Free) * g.UnitMiB
}
