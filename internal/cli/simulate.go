// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"nomad-gpu-mem/internal/simulate"
)

const simulateLong = `Replay a trace of tasks with placement policies and with Nomad's own scheduler, and
show how much of the cluster's GPU capacity is in use.

The trace is in the format of the public openb trace: a directory with
openb_node_list_gpu_node.csv and openb_pod_list_<list>.csv, or two files of any
name. Tasks arrive in an order that a seed shuffles. Tasks that fit nowhere are
dropped. Without --departures tasks stay, and arrive until they ask for a multiple
of the cluster; with it they come and go. The table shows what is in use, and what
was admitted: of all GPU work, and by the number of GPUs that a task asks for. With
several policies, a second table shows the differences from the first one, seed by
seed, with their standard errors.

--sample uses small clusters: every seed draws one from the trace.

--demand sets what a policy knows of future tasks: their kinds and how frequent
each is ("given"), or only those that have arrived ("learned").`

const simulateExample = `  # two policies, ten seeds, and a plot
  nomad-gpu-mem simulate --trace ~/openb --policy least-waste,fgd --seeds 42-51 --plot openb.svg

  # Nomad's scheduler as it is, and steered by the default policy
  nomad-gpu-mem simulate --trace ~/openb --scheduler nomad --seeds 1

  # tasks that come and go; on average they ask for 110 % of the cluster
  nomad-gpu-mem simulate --trace ~/openb --departures 1.1

  # from half empty to overloaded, drawn over the load
  nomad-gpu-mem simulate --trace ~/openb --policy least-waste,best-fit --departures 0.7,0.8,0.9,1.0,1.1 --plot load.svg

  # twenty clusters each of 8 and 16 nodes with 8 GPUs
  nomad-gpu-mem simulate --trace ~/openb --policy least-waste,pack --sample 8x8,16x8 --departures 0.7 --seeds 1-20`

// simulateCommand is one call of `simulate`.
type simulateCommand struct {
	trace, list, nodes, tasks string
	contest                   contest
	inflation                 float64
	departures                []float64
	samples                   []string
	seeds                     string
	workers                   int
	csv, plot                 string
	out, err                  io.Writer
}

func (a App) newSimulate() *cobra.Command {
	s := &simulateCommand{}
	cmd := &cobra.Command{
		Use:     "simulate",
		Short:   "Measure placement policies and Nomad's scheduler on a trace",
		Long:    simulateLong,
		Example: simulateExample,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.out, s.err = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return s.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&s.trace, "trace", a.Getenv("GPU_MEM_TRACE"), "`directory` of the trace; by default GPU_MEM_TRACE")
	flags.StringVar(&s.list, "list", "default", "which of the trace's `lists` of tasks to replay")
	flags.StringVar(&s.nodes, "nodes", "", "`file` of nodes, instead of the trace's")
	flags.StringVar(&s.tasks, "tasks", "", "`file` of tasks, instead of one of the trace's")
	s.contest.register(flags)
	flags.Float64Var(&s.inflation, "inflation", 1.3, "tasks arrive until they ask for this `multiple` of the cluster")
	flags.Float64SliceVar(&s.departures, "departures", nil, "tasks come and go, and ask for these `multiples` of the cluster on average, one after another")
	flags.StringSliceVar(&s.samples, "sample", nil, "small clusters of these `shapes`, for example 8x4 for 8 nodes with 4 GPUs, instead of the trace's")
	flags.StringVar(&s.seeds, "seeds", "1-3", "`seeds`, for example 7 or 1-10 or 1,2,5")
	flags.IntVar(&s.workers, "workers", runtime.NumCPU(), "`runs` at the same time")
	flags.StringVar(&s.csv, "csv", "", "write every run's figures and curve to this `file`")
	flags.StringVar(&s.plot, "plot", "", "draw use against arrivals, or against load, to this `file`, .png or .svg")
	return cmd
}

func (s *simulateCommand) run(ctx context.Context) error {
	experiment, err := s.experiment()
	if err != nil {
		return err
	}
	bar := s.progress(experiment.Arrivals())
	experiment.Tick = func() { _ = bar.Add(1) } // the simulation does not depend on the bar
	rows, err := experiment.Run(ctx)
	_ = bar.Exit()
	if err != nil {
		return err
	}
	return s.write(experiment.Figures(), rows)
}

// write prints the results and writes the files.
func (s *simulateCommand) write(figures []string, rows []simulate.Row) error {
	if err := simulate.WriteTable(s.out, figures, rows); err != nil {
		return err
	}
	if len(rows) > 1 && rows[0].Test == rows[1].Test {
		fmt.Fprintln(s.out)
		if err := simulate.WriteDifferences(s.out, figures, rows); err != nil {
			return err
		}
	}
	if s.csv != "" {
		if err := s.writeCSV(figures, rows); err != nil {
			return err
		}
	}
	switch {
	case s.plot == "":
		return nil
	case len(s.departures) > 0:
		return simulate.WriteLoadPlot(s.plot, "With departures, "+s.list, rows)
	}
	return simulate.WritePlot(s.plot, "GPU capacity in use, "+s.list, rows)
}

// experiment builds the experiment from the flags.
func (s *simulateCommand) experiment() (simulate.Experiment, error) {
	none := simulate.Experiment{}
	seeds, err := parseSeeds(s.seeds)
	if err != nil {
		return none, usageError{err}
	}
	contenders, err := s.contest.contenders()
	if err != nil {
		return none, usageError{err}
	}
	cases, err := s.cases()
	if err != nil {
		return none, usageError{err}
	}
	for _, path := range []string{s.csv, s.plot} { // before hours of work
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return none, usageError{err}
		}
	}
	nodes, tasks, err := s.files()
	if err != nil {
		return none, usageError{err}
	}
	trace, err := simulate.ReadTrace(nodes, tasks)
	if err != nil {
		return none, err
	}
	return simulate.Experiment{Trace: trace, Cases: cases, Contenders: contenders, Seeds: seeds, Workers: s.workers}, nil
}

// files are the trace's two files.
func (s *simulateCommand) files() (nodes, tasks string, _ error) {
	nodes, tasks = s.nodes, s.tasks
	if s.trace == "" && (nodes == "" || tasks == "") {
		return "", "", errors.New("no trace: set its directory with --trace or GPU_MEM_TRACE, or two files with --nodes and --tasks")
	}
	if nodes == "" {
		nodes = filepath.Join(s.trace, "openb_node_list_gpu_node.csv")
	}
	if tasks == "" {
		tasks = filepath.Join(s.trace, "openb_pod_list_"+s.list+".csv")
	}
	return nodes, tasks, nil
}

// lifetimes is how long a test with departures warms up, and how long it is then measured,
// in mean lifetimes of a task.
const lifetimes = 5

// mostLoad bounds what tasks may ask for, in multiples of the cluster: a typing error
// would run for days.
const mostLoad = 100

// leastArrivals is the least number of tasks that a test with departures measures.
const leastArrivals = 5000

// cases combines each test with each shape of cluster.
func (s *simulateCommand) cases() ([]simulate.Case, error) {
	samples, err := parseSamples(s.samples)
	if err != nil {
		return nil, err
	}
	tests, err := s.tests()
	if err != nil {
		return nil, err
	}
	var cases []simulate.Case
	for _, sample := range samples {
		for _, test := range tests {
			cases = append(cases, simulate.Case{Test: test, Sample: sample})
		}
	}
	return cases, s.checkPlot()
}

// tests returns the tests that the flags select.
func (s *simulateCommand) tests() ([]simulate.Test, error) {
	for _, multiple := range append([]float64{s.inflation}, s.departures...) {
		if !(0 < multiple && multiple <= mostLoad) {
			return nil, errors.New("--inflation and --departures must be above 0 and at most 100 (multiples of the cluster), for example 1.3")
		}
	}
	if len(s.departures) == 0 {
		return []simulate.Test{simulate.Inflation{UpTo: s.inflation}}, nil
	}
	var tests []simulate.Test
	for _, load := range s.departures {
		tests = append(tests, simulate.Departures{Load: load, Lives: lifetimes, WarmUp: lifetimes, Least: leastArrivals})
	}
	return tests, nil
}

// checkPlot returns an error if --plot does not match the other flags.
func (s *simulateCommand) checkPlot() error {
	switch extension := filepath.Ext(s.plot); {
	case s.plot == "":
		return nil
	case extension != ".png" && extension != ".svg":
		return fmt.Errorf("--plot=%s must end in .png or .svg", s.plot)
	case len(s.departures) == 1:
		return errors.New("--plot draws against the load: give --departures more than one")
	case len(s.samples) > 1:
		return errors.New("--plot draws one shape of cluster: give --sample only one")
	}
	return nil
}

// mostNodes bounds a sample.
const mostNodes = 100_000

// parseSamples reads shapes of clusters; the default is the trace's own.
func parseSamples(shapes []string) ([]simulate.Sample, error) {
	if len(shapes) == 0 {
		return []simulate.Sample{{}}, nil
	}
	var samples []simulate.Sample
	for _, shape := range shapes {
		nodes, gpus, _ := strings.Cut(shape, "x")
		n, err := strconv.Atoi(nodes)
		g, err2 := strconv.Atoi(gpus)
		if errors.Join(err, err2) != nil || n <= 0 || n > mostNodes || g <= 0 {
			return nil, fmt.Errorf("--sample: invalid shape %q, want nodes x GPUs, for example 8x4", shape)
		}
		samples = append(samples, simulate.Sample{Nodes: n, GPUs: g})
	}
	return samples, nil
}

// progress is a bar that is visible on a terminal only.
func (s *simulateCommand) progress(arrivals int) *progressbar.ProgressBar {
	visible := false
	if file, ok := s.err.(*os.File); ok {
		visible = term.IsTerminal(int(file.Fd()))
	}
	return progressbar.NewOptions(arrivals,
		progressbar.OptionSetWriter(s.err),
		progressbar.OptionSetVisibility(visible),
		progressbar.OptionSetDescription("simulating"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetItsString("tasks"),
		progressbar.OptionShowIts(),
		progressbar.OptionThrottle(200*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

func (s *simulateCommand) writeCSV(figures []string, rows []simulate.Row) error {
	file, err := os.Create(s.csv)
	if err != nil {
		return err
	}
	return errors.Join(simulate.WriteCSV(file, figures, rows), file.Close())
}
