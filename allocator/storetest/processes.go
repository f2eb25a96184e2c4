// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package storetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

const (
	// clientEnv carries the orders of a test's program that is a client.
	clientEnv = "GPU_MEM_TEST_CLIENT"

	// deathPercent is how often a client is killed before or after a call of
	// its store.
	deathPercent = 1

	// lateTime is how long after its process's death a request may arrive.
	lateTime = 250 * time.Millisecond
)

// orders are the parameters of a client process.
type orders struct {
	Store      string `json:"store"` // for the function that opens it
	Client     int    `json:"client"`
	Seed       uint64 `json:"seed"`
	Life       int    `json:"life"` // how many processes this client has had
	Operations int    `json:"operations"`
}

// report is a line that a client process prints.
type report struct {
	Began    *call    `json:"began,omitempty"`
	Ended    *call    `json:"ended,omitempty"`
	Injected Injected `json:"injected"` // until now
}

// ClientMain makes the process a client and does not return, if ProveProcesses
// started it. A package that uses ProveProcesses calls it first in its TestMain.
func ClientMain(open func(store string) (allocator.Store, error)) {
	text := os.Getenv(clientEnv)
	if text == "" {
		return
	}
	if err := runClient(text, open); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runClient(text string, open func(string) (allocator.Store, error)) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	store, err := open(o.Store)
	if err != nil {
		return err
	}
	faults := usualFaults
	faults.Death = deathPercent
	out := json.NewEncoder(os.Stdout)
	c := newClient(o.Client, store, faults, rand.New(rand.NewPCG(o.Seed, uint64(o.Client)<<32|uint64(o.Life))), func() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until it takes effect
	})
	c.began = func(this call) { _ = out.Encode(report{Began: &this, Injected: c.seam.injected}) }
	c.ended = func(this call) { _ = out.Encode(report{Ended: &this, Injected: c.seam.injected}) }
	return c.run(context.Background(), o.Operations)
}

// ProveProcesses does what Prove does, with a process for each client: the
// test's own program, which ClientMain makes one. The processes die between any
// two steps, and others continue in their place.
func ProveProcesses(t *testing.T, store string, clients, operations int) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	hosts := make([]*host, clients)
	failed := make([]error, clients)
	var running sync.WaitGroup
	for n := range hosts {
		hosts[n] = &host{orders: orders{Store: store, Client: n, Seed: seed}}
		running.Go(func() { failed[n] = hosts[n].run(t.Context(), operations) })
	}
	running.Wait()
	must.NoError(t, errors.Join(failed...))
	var history []call
	var injected Injected
	for _, h := range hosts {
		history = append(history, h.calls...)
		injected.add(h.injected)
	}
	checkHistory(t, history, injected)
}

// host runs one client's processes, one after the other.
type host struct {
	orders   orders
	calls    []call
	injected Injected
}

func (h *host) run(ctx context.Context, operations int) error {
	for len(h.calls) < operations {
		h.orders.Operations = operations - len(h.calls)
		if err := h.live(ctx); err != nil {
			return err
		}
		h.orders.Life++
	}
	return nil
}

// live runs one process until it ends or dies. The operation that it died in
// may have been done or not, also a moment later.
func (h *host) live(ctx context.Context) error {
	text, err := json.Marshal(h.orders)
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, os.Args[0])
	process.Env = append(os.Environ(), clientEnv+"="+string(text))
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	under, injected := h.follow(out)
	err = process.Wait()
	h.injected.add(injected)
	if under == nil {
		return err
	}
	if process.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("client %d failed in %+v: %w", h.orders.Client, under.Op, err)
	}
	h.injected.Deaths++
	under.Outcome, under.End = Outcome{Result: unknown}, clock()+lateTime.Nanoseconds()
	h.calls = append(h.calls, *under)
	return nil
}

// follow reads what the process reports. It returns the operation that has not
// ended, if there is one, and the faults that the process had.
func (h *host) follow(out interface{ Read([]byte) (int, error) }) (under *call, injected Injected) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			break // cut short
		}
		injected, under = r.Injected, r.Began
		if r.Ended != nil {
			h.calls = append(h.calls, *r.Ended)
		}
	}
	return under, injected
}
