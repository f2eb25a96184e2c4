package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"nomad-gpu-mem/internal/simulate"
)

const simulateLong = `Play a trace of tasks against placement policies and Nomad's own scheduler, and
show how much of the cluster's GPU capacity ends up in use.

The trace is in the format of the public openb trace: a directory with
openb_node_list_gpu_node.csv and openb_pod_list_<list>.csv, or two files of any
name. Tasks arrive in an order that a seed shuffles. Those for which there is no
room are dropped. Without --departures tasks stay, and arrive until they ask for
a multiple of the cluster; with it they come and go.

--demand says what a policy knows of the tasks to come: their kinds and how
frequent each is ("given"), or only those that have arrived ("learned").`

const simulateExample = `  # two policies, ten seeds, and a plot
  nomad-gpu-mem simulate --trace ~/openb --policy least-waste,fgd --seeds 42-51 --plot openb.svg

  # Nomad's scheduler as it is, and steered by the default policy
  nomad-gpu-mem simulate --trace ~/openb --scheduler nomad --seeds 1

  # tasks that come and go; on average they want 110 % of the cluster
  nomad-gpu-mem simulate --trace ~/openb --departures 1.1`

// simulateCommand is one call of `simulate`.
type simulateCommand struct {
	trace, list, nodes, tasks string
	contest                   contest
	inflation, departures     float64
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
	flags.StringVar(&s.trace, "trace", a.Getenv("GPU_MEM_TRACE"), "`directory` of the trace; by itself GPU_MEM_TRACE")
	flags.StringVar(&s.list, "list", "default", "which of the trace's `lists` of tasks to play")
	flags.StringVar(&s.nodes, "nodes", "", "`file` of nodes, instead of the trace's")
	flags.StringVar(&s.tasks, "tasks", "", "`file` of tasks, instead of one of the trace's")
	s.contest.register(flags)
	flags.Float64Var(&s.inflation, "inflation", 1.3, "tasks arrive until they ask for this `multiple` of the cluster")
	flags.Float64Var(&s.departures, "departures", 0, "tasks come and go, and ask for this `multiple` of the cluster on average")
	flags.StringVar(&s.seeds, "seeds", "1-3", "`seeds`, such as 7 or 1-10 or 1,2,5")
	flags.IntVar(&s.workers, "workers", runtime.NumCPU(), "`runs` at the same time")
	flags.StringVar(&s.csv, "csv", "", "write every run's figures and curve to this `file`")
	flags.StringVar(&s.plot, "plot", "", "draw use against arrivals to this `file`, .png or .svg")
	return cmd
}

func (s *simulateCommand) run(ctx context.Context) error {
	experiment, err := s.experiment()
	if err != nil {
		return err
	}
	bar := s.progress(experiment.Arrivals())
	experiment.Tick = func() { _ = bar.Add(1) } // a bar that cannot be drawn is no reason to stop
	rows, err := experiment.Run(ctx)
	_ = bar.Exit()
	if err != nil {
		return err
	}
	figures := experiment.Test.Figures()
	if err := simulate.WriteTable(s.out, figures, rows); err != nil {
		return err
	}
	if s.csv != "" {
		if err := s.writeCSV(figures, rows); err != nil {
			return err
		}
	}
	if s.plot != "" {
		return simulate.WritePlot(s.plot, "GPU capacity in use, "+s.list, rows)
	}
	return nil
}

// experiment reads what the flags say.
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
	test, err := s.test()
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
	return simulate.Experiment{Trace: trace, Test: test, Contenders: contenders, Seeds: seeds, Workers: s.workers}, nil
}

// files are the trace's two files.
func (s *simulateCommand) files() (nodes, tasks string, _ error) {
	nodes, tasks = s.nodes, s.tasks
	if s.trace == "" && (nodes == "" || tasks == "") {
		return "", "", errors.New("which trace? Give its directory with --trace or GPU_MEM_TRACE, or two files with --nodes and --tasks")
	}
	if nodes == "" {
		nodes = filepath.Join(s.trace, "openb_node_list_gpu_node.csv")
	}
	if tasks == "" {
		tasks = filepath.Join(s.trace, "openb_pod_list_"+s.list+".csv")
	}
	return nodes, tasks, nil
}

// lifetimes are how long a test with departures is measured, and warms up.
const lifetimes = 5

// mostLoad bounds what tasks may ask for, in clusters: a slip of the hand would
// run for days.
const mostLoad = 100

func (s *simulateCommand) test() (simulate.Test, error) {
	switch extension := filepath.Ext(s.plot); {
	case !(0 <= s.departures && s.departures <= mostLoad && 0 < s.inflation && s.inflation <= mostLoad):
		return nil, errors.New("--inflation and --departures are multiples of the cluster, such as 1.3, and 100 at most")
	case s.plot != "" && extension != ".png" && extension != ".svg":
		return nil, fmt.Errorf("--plot=%s must end in .png or .svg", s.plot)
	case s.plot != "" && s.departures > 0:
		return nil, errors.New("--plot draws use against arrivals: there is nothing to draw with --departures")
	case s.departures > 0:
		return simulate.Departures{Load: s.departures, Lives: lifetimes, WarmUp: lifetimes}, nil
	}
	return simulate.Inflation{UpTo: s.inflation}, nil
}

// progress is a bar, if someone looks at it.
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
