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
// nowhere, or Nomad deviated from the plan.
const ExitWaiting = 6

const planExit = `Exit codes:
  0  all instances have a place; after run: they were started there, and with
     --follow they are healthy
  1  failed: the job, its profile or Nomad
  2  invalid flags, arguments or environment
  3  the table cannot be read: unavailable, permission denied, missing
  6  some instances fit nowhere, Nomad deviated from the plan, or the
     deployment failed`

const plannerNomadHelp = `Nomad's address is --nomad-address, NOMAD_ADDR or http://127.0.0.1:4646; in a Nomad task
that has a NOMAD_TOKEN it defaults to NOMAD_UNIX_ADDR. NOMAD_TOKEN and the other variables
of Nomad's clients apply too.`

// plannerFlags are the options of the commands that plan.
type plannerFlags struct {
	table     *tableFlags
	reserves  bool // whether the command changes the table
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
	flags.StringVar(&f.policy, "policy", placement.DefaultPolicy, "how to choose among the GPUs that fit: "+policyNames())
	flags.Float64SliceVar(&f.balance, "balance", []float64{1, 1, 1},
		"three `weights` of the policy balanced: even load over nodes, over a node's GPUs, room for future tasks")
	flags.StringVar(&f.pin, "pin", string(planner.Shortlist), "how strictly to bind the job to the planned nodes: shortlist, soft or hard")
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
		return planner.Options{}, usageError{fmt.Errorf("--shortlist must be at least 1, got %d", f.shortlist)}
	}
	return planner.Options{Policy: policy, Pin: pin, Shortlist: f.shortlist}, nil
}

// client returns a client of Nomad, at its default address if none is given.
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

// explain adds a hint to errors of the table; those of the job and of Nomad stay as they are.
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

// waitingError summarises what the output has reported already.
type waitingError struct{ what string }

func (e *waitingError) Error() string { return e.what }
