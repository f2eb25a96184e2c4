// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"errors"
	"fmt"

	"github.com/hashicorp/nomad/api"
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
  0  all instances have a place; after run: they were started there, and with
     --follow they are healthy
  1  failed: the job, its profile or Nomad
  2  wrong use: flags, arguments or environment
  3  the table cannot be read: not reachable, permission denied, missing
  6  some instances fit nowhere, Nomad did otherwise than planned, or the
     deployment failed`

const plannerNomadHelp = `Nomad is asked at --nomad-address, NOMAD_ADDR or http://127.0.0.1:4646; in a Nomad task
with a NOMAD_TOKEN of its own at NOMAD_UNIX_ADDR. NOMAD_TOKEN and the other variables
that all Nomad clients read count too.`

// plannerFlags are the options of the commands that plan.
type plannerFlags struct {
	table     *tableFlags
	reserves  bool // the command changes the table
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
	if policy, err = balanced(policy, f.balance); err != nil {
		return planner.Options{}, usageError{err}
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

// site is Nomad and the table, for one command that plans.
type site struct {
	*live.Site
	client *api.Client
	table  *allocator.Table
}

// openSite opens Nomad and the table. The caller closes the site.
func (a App) openSite(f *plannerFlags) (*site, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	table, err := a.open(f.table)
	if err != nil {
		return nil, err
	}
	return &site{Site: live.New(client, table), client: client, table: table}, nil
}

// Close closes the table.
func (s *site) Close() error { return s.table.Close() }

// explain tells errors of the table from those of the job and of Nomad.
func (f *plannerFlags) explain(err error) error {
	switch {
	case !errors.Is(err, allocator.ErrUnavailable) && !errors.Is(err, allocator.ErrDenied):
		return err
	case f.reserves && errors.Is(err, allocator.ErrDenied):
		return f.table.explainChange(err)
	default:
		return f.table.explain(err)
	}
}

// waitingError says what the output has told already.
type waitingError struct{ what string }

func (e *waitingError) Error() string { return e.what }
