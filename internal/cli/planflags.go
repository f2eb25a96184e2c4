package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/placement"
	"nomad-gpu-mem/internal/planner"
	"nomad-gpu-mem/internal/planner/live"
)

// ExitWaiting is the exit code of plan, run and replan if some instances fit
// nowhere, or Nomad did otherwise than planned.
const ExitWaiting = 6

const planExit = `Exit codes:
  0  all instances have a place; after run: they were started there
  1  failed: the job, its profile or Nomad
  2  wrong use: flags, arguments or environment
  3  the table cannot be read: not reachable, permission denied, missing
  6  some instances fit nowhere, or Nomad did otherwise than planned`

const plannerNomadHelp = `Nomad is asked at --nomad-address, NOMAD_ADDR or http://127.0.0.1:4646. NOMAD_TOKEN
and the other variables that all Nomad clients read count too.`

// plannerFlags are the options of the commands that plan.
type plannerFlags struct {
	table     *tableFlags
	nomad     nomadFlags
	policy    string
	balance   []float64
	pin       string
	shortlist int
}

func newPlannerFlags(table *tableFlags) *plannerFlags {
	return &plannerFlags{table: table, nomad: nomadFlags{getenv: table.getenv}}
}

func (f *plannerFlags) register(flags *pflag.FlagSet) {
	f.nomad.register(flags)
	flags.StringVar(&f.policy, "policy", placement.DefaultPolicy, "how to choose among the places that fit: "+policyNames())
	flags.Float64SliceVar(&f.balance, "balance", []float64{1, 1, 1},
		"three `weights` of the policy balanced: even load over nodes, over a node's GPUs, room for future tasks")
	flags.StringVar(&f.pin, "pin", string(planner.Shortlist), "how firmly to bind the job to its places: shortlist, soft or hard")
	flags.IntVar(&f.shortlist, "shortlist", planner.DefaultShortlist, "`nodes` on the list that the pin \"shortlist\" writes")
}

func (f *plannerFlags) options() (planner.Options, error) {
	policy, err := placement.PolicyNamed(f.policy)
	if err != nil {
		return planner.Options{}, usageError{err}
	}
	if len(f.balance) != 3 {
		return planner.Options{}, usageError{fmt.Errorf("--balance takes three weights, have %d", len(f.balance))}
	}
	if f.policy == "balanced" {
		policy.Weights = placement.Balanced(f.balance[0], f.balance[1], f.balance[2])
	}
	pin, err := planner.ParsePin(f.pin)
	if err != nil {
		return planner.Options{}, usageError{err}
	}
	if f.shortlist < 1 {
		return planner.Options{}, usageError{fmt.Errorf("--shortlist=%d: at least one node is needed", f.shortlist)}
	}
	return planner.Options{Policy: policy, Pin: pin, Shortlist: f.shortlist}, nil
}

// client is Nomad's, at its usual address if none is given.
func (f *plannerFlags) client() (*api.Client, error) {
	client, err := f.nomad.open()
	if client == nil && err == nil {
		client, err = api.NewClient(api.DefaultConfig())
	}
	return client, err
}

// withSite opens Nomad and the table for one command.
func (a App) withSite(f *plannerFlags, do func(*api.Client, *live.Site) error) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	return a.withTable(f.table, func(table *allocator.Table) error {
		return f.explain(do(client, live.New(client, table)))
	})
}

// explain tells errors of the table from those of the job and of Nomad.
func (f *plannerFlags) explain(err error) error {
	if errors.Is(err, allocator.ErrUnavailable) || errors.Is(err, allocator.ErrDenied) {
		return f.table.explain(err)
	}
	return err
}

// jobFlags are the options that say what a job file is.
type jobFlags struct {
	getenv   func(string) string
	vars     []string
	varFiles []string
}

func (f *jobFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.vars, "var", nil, "a variable of the job file, as `name=value`; repeat it for more")
	flags.StringArrayVar(&f.varFiles, "var-file", nil, "`file` with variables of the job file; repeat it for more")
}

// read returns the job of a file, of standard input if that is "-". HCL is read
// by Nomad, which knows its own version of it.
func (f *jobFlags) read(ctx context.Context, client *api.Client, path string, stdin io.Reader) (*api.Job, error) {
	text, err := readFile(path, stdin)
	if err != nil {
		return nil, usageError{err}
	}
	var job *api.Job
	if json.Valid(text) {
		job, err = jsonJob(text)
	} else {
		job, err = f.parse(ctx, client, path, string(text))
	}
	if err != nil {
		return nil, err
	}
	f.complete(job)
	return job, nil
}

func (f *jobFlags) parse(ctx context.Context, client *api.Client, path, hcl string) (*api.Job, error) {
	variables, err := f.variables()
	if err != nil {
		return nil, usageError{err}
	}
	var job api.Job
	request := &api.JobsParseRequest{JobHCL: hcl, Variables: variables}
	w := (&api.WriteOptions{}).WithContext(ctx)
	if _, err := client.Raw().Write("/v1/jobs/parse", request, &job, w); err != nil {
		return nil, fmt.Errorf("Nomad at %s cannot read %s: %w", client.Address(), path, err)
	}
	if job.ID == nil {
		job.ID = job.Name
	}
	return &job, nil
}

// complete adds what `nomad job run` takes from the environment.
func (f *jobFlags) complete(job *api.Job) {
	for _, from := range []struct {
		name string
		to   **string
	}{{"NOMAD_NAMESPACE", &job.Namespace}, {"CONSUL_HTTP_TOKEN", &job.ConsulToken}, {"VAULT_TOKEN", &job.VaultToken}} {
		if value := f.getenv(from.name); value != "" && *from.to == nil {
			*from.to = &value
		}
	}
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// jsonJob reads a job as `nomad job inspect` or `nomad job run -output` write it.
func jsonJob(text []byte) (*api.Job, error) {
	var wrapped struct{ Job json.RawMessage }
	if err := json.Unmarshal(text, &wrapped); err == nil && len(wrapped.Job) > 0 {
		text = wrapped.Job
	}
	var job api.Job
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&job); err != nil || job.ID == nil {
		return nil, usageError{fmt.Errorf("want a job with an ID, as `nomad job inspect` prints it: %w", err)}
	}
	return &job, nil
}

// variables are those of the flags, as a file of variables has them. Values are
// strings unless they are lists or objects: HCL makes numbers of strings where
// the variable is one.
func (f *jobFlags) variables() (string, error) {
	var all strings.Builder
	for _, path := range f.varFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		all.Write(append(text, '\n'))
	}
	for _, v := range f.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return "", fmt.Errorf("--var %q is not of the form name=value", v)
		}
		if !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") {
			value = quoteHCL(value)
		}
		fmt.Fprintf(&all, "%s = %s\n", name, value)
	}
	return all.String(), nil
}

// quoteHCL writes a string that stands for itself.
func quoteHCL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").Replace(s) + `"`
}

// oneJob wants the file of one job.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s takes one job file, or - for standard input; have %q", cmd.CommandPath(), args)}
}

// waitingError says what the output has told already.
type waitingError struct{ what string }

func (e *waitingError) Error() string { return e.what }
