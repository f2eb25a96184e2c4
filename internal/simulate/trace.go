// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"nomad-gpu-mem/allocator/placement"
)

// wholeGPU is a whole GPU in the trace's unit, thousandths of a GPU.
const wholeGPU = 1000

// Trace is a cluster and a list of tasks.
type Trace struct {
	Nodes []placement.Node
	Tasks []Task
}

// Task is one task of a trace. Tasks with equal requests share a class.
type Task struct {
	Class   int
	Request placement.Request
	Milli   int // thousandths of a GPU that it asks for
}

// ReadTrace reads a cluster and a list of tasks in the format of the openb
// trace: CSV files with the columns
//
//	nodes: sn, cpu_milli, memory_mib, gpu, model
//	tasks: cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec (optional)
func ReadTrace(nodes, tasks string) (*Trace, error) {
	t := &Trace{}
	if err := readFile(nodes, t.addNode, "sn", "cpu_milli", "memory_mib", "gpu", "model"); err != nil {
		return nil, err
	}
	classes := map[string]int{}
	add := func(row record) error { return t.addTask(row, classes) }
	if err := readFile(tasks, add, "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"); err != nil {
		return nil, err
	}
	if t.Capacity() == 0 || t.Demand() == 0 {
		return nil, fmt.Errorf("%s has %d thousandths of a GPU and %s asks for %d: nothing to simulate",
			nodes, t.Capacity(), tasks, t.Demand())
	}
	return t, nil
}

// Capacity is the number of the cluster's GPUs, in thousandths.
func (t *Trace) Capacity() int {
	gpus := 0
	for _, n := range t.Nodes {
		gpus += len(n.GPUs)
	}
	return gpus * wholeGPU
}

// Demand is what all tasks together ask for, in thousandths of a GPU.
func (t *Trace) Demand() int {
	milli := 0
	for _, task := range t.Tasks {
		milli += task.Milli
	}
	return milli
}

// meanMilli returns what a task asks for on average.
func (t *Trace) meanMilli() float64 { return float64(t.Demand()) / float64(len(t.Tasks)) }

// Classes counts the tasks with equal requests.
func (t *Trace) Classes() []placement.Class {
	var classes []placement.Class
	for _, task := range t.Tasks {
		if task.Class == len(classes) {
			classes = append(classes, placement.Class{Request: task.Request})
		}
		classes[task.Class].Weight++
	}
	return classes
}

// addNode divides each GPU into thousandths: the trace has no memory sizes.
func (t *Trace) addNode(row record) error {
	n := placement.Node{ID: row.text("sn"), CPU: row.number("cpu_milli"), MemoryMiB: row.number("memory_mib")}
	n.Name = n.ID
	for i := range row.gpus("gpu") {
		n.GPUs = append(n.GPUs, placement.GPU{
			ID: n.ID + "-gpu-" + strconv.Itoa(i), Model: row.text("model"), UnitMiB: 1, Units: wholeGPU, Free: wholeGPU,
		})
	}
	t.Nodes = append(t.Nodes, n)
	return row.problem()
}

// addTask asks for thousandths of one GPU, or for whole GPUs.
func (t *Trace) addTask(row record, classes map[string]int) error {
	count, milli := row.gpus("num_gpu"), row.number("gpu_milli")
	if count > 1 && milli != wholeGPU || milli > wholeGPU {
		return fmt.Errorf("%d times %d thousandths of a GPU: a task may share only one GPU", count, milli)
	}
	task := Task{Milli: count * milli, Request: placement.Request{CPU: row.number("cpu_milli"), MemoryMiB: row.number("memory_mib")}}
	for range count {
		task.Request.Asks = append(task.Request.Asks, newAsk(milli, row.text("gpu_spec")))
	}
	key := fmt.Sprint(task.Request.CPU, task.Request.MemoryMiB, count, milli, row.text("gpu_spec"))
	class, known := classes[key]
	if !known {
		class = len(classes)
		classes[key] = class
	}
	task.Class = class
	t.Tasks = append(t.Tasks, task)
	return row.problem()
}

func newAsk(milli int, models string) placement.Ask {
	a := placement.Ask{Units: milli, Apart: "task"}
	if milli == wholeGPU {
		a.Units, a.Whole = 0, true
	}
	if models != "" {
		a.Models = strings.Split(models, "|")
	}
	return a
}

// record is a row of a CSV file.
type record struct {
	columns map[string]int
	fields  []string
	err     *error
}

func (r record) text(column string) string {
	at, known := r.columns[column]
	if !known {
		return ""
	}
	return r.fields[at]
}

// number reads a field that is not negative. See problem.
func (r record) number(column string) int {
	n, err := strconv.Atoi(r.text(column))
	if err == nil && n < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil && *r.err == nil {
		*r.err = fmt.Errorf("column %s: invalid value %q: %w", column, r.text(column), err)
	}
	return max(0, n)
}

// mostGPUs is more than a node of a real cluster has.
const mostGPUs = 64

// gpus reads a number of GPUs that a node has or a task asks for. See problem.
func (r record) gpus(column string) int {
	n := r.number(column)
	if n > mostGPUs && *r.err == nil {
		*r.err = fmt.Errorf("column %s: invalid value %d: a node has at most %d GPUs", column, n, mostGPUs)
	}
	return min(n, mostGPUs)
}

// problem returns the error of the first invalid field.
func (r record) problem() error { return *r.err }

// readFile calls add for every row of a CSV file that has these columns.
func readFile(path string, add func(record) error, columns ...string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	rows := csv.NewReader(file)
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty, want CSV with the columns %s", path, strings.Join(columns, ", "))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	have := map[string]int{}
	for i, column := range head {
		have[column] = i
	}
	for _, column := range columns {
		if _, found := have[column]; !found {
			return fmt.Errorf("%s has no column %s", path, column)
		}
	}
	for {
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = add(record{columns: have, fields: fields, err: new(error)})
		}
		if err != nil {
			line, _ := rows.FieldPos(0)
			return fmt.Errorf("%s, line %d: %w", path, line, err)
		}
	}
}
