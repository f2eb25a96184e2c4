// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import "math"

// Size is a class of tasks by the GPUs that they ask for.
type Size int

// The sizes, from the smallest on.
const (
	NoGPU     Size = iota
	Shared         // less than one GPU
	OneGPU         // exactly one
	FewGPUs        // 2 to 4
	ManyGPUs       // more
	sizeCount = iota
)

var sizeNames = [sizeCount]string{"no GPU", "below 1", "1 GPU", "2-4", "5 and more"}

// String names the size as tables do.
func (s Size) String() string { return sizeNames[s] }

// sizeOf is the size of a task.
func sizeOf(task Task) Size {
	switch {
	case task.Milli == 0:
		return NoGPU
	case task.Milli < wholeGPU:
		return Shared
	case task.Milli == wholeGPU:
		return OneGPU
	case task.Milli <= 4*wholeGPU:
		return FewGPUs
	}
	return ManyGPUs
}

// admission counts what arrived and what was admitted of it, by size: in
// thousandths of a GPU, and in tasks where they ask for no GPU.
type admission struct{ arrived, admitted [sizeCount]int }

// count records a task that arrived.
func (a *admission) count(task Task, admitted bool) {
	size, amount := sizeOf(task), max(1, task.Milli)
	a.arrived[size] += amount
	if admitted {
		a.admitted[size] += amount
	}
}

// admissionFigures names what figures returns.
func admissionFigures() []string {
	names := []string{"admitted"}
	for size := range Size(sizeCount) {
		names = append(names, size.String())
	}
	return names
}

// figures are the admitted shares in percent: of all GPU work, and of each size.
// The share of a size that did not arrive is not a number.
func (a *admission) figures() []float64 {
	var arrived, admitted int
	for size := range Size(sizeCount) {
		if size != NoGPU {
			arrived += a.arrived[size]
			admitted += a.admitted[size]
		}
	}
	figures := []float64{share(admitted, arrived)}
	for size := range Size(sizeCount) {
		figures = append(figures, share(a.admitted[size], a.arrived[size]))
	}
	return figures
}

func share(part, of int) float64 {
	if of == 0 {
		return math.NaN()
	}
	return 100 * float64(part) / float64(of)
}
