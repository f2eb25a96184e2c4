// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package fakenvml

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"
)

const (
	libraryEnv = "FAKE_NVML_LIBRARY"
	childEnv   = "FAKE_NVML_TEST" // name of the test that a child process runs
)

// Machine is the simulated machine of one test.
type Machine struct {
	Library string // for the option nvml_library
	state   string
	t       *testing.T
}

// Set replaces the machine's state from the next call on.
func (m *Machine) Set(state State) {
	m.t.Helper()
	must.NoError(m.t, state.Write(m.state))
}

// Main is the TestMain of a package with tests that use Run: it builds the library
// once for all of them, and fails the package if a goroutine is left.
func Main(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		goleak.VerifyTestMain(m)
		return
	}
	dir, err := os.MkdirTemp("", "fakenvml-")
	exitOn(err)
	library, err := Build(dir)
	exitOn(err)
	exitOn(os.Setenv(libraryEnv, library))
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// childTimeout is the timeout of the calling test, if known.
func childTimeout() string {
	if f := flag.Lookup("test.timeout"); f != nil && f.Value.String() != "0s" {
		return f.Value.String()
	}
	return "10m"
}

// Run runs a top-level test in a separate process, since a process can load only one NVML and
// keeps its state forever. Each such test has its own machine, without a driver until Set is
// called. Its library lacks the functions named in without.
func Run(t *testing.T, test func(*testing.T, *Machine), without ...string) {
	t.Helper()
	if os.Getenv(childEnv) == t.Name() {
		test(t, &Machine{Library: os.Getenv(libraryEnv), state: os.Getenv(StateEnv), t: t})
		return
	}
	t.Parallel()
	dir := t.TempDir()
	env := append(os.Environ(), childEnv+"="+t.Name(), StateEnv+"="+filepath.Join(dir, "state"),
		"GORACE=atexit_sleep_ms=0") // a process that ends under the race detector sleeps for a second
	if len(without) > 0 {
		library, err := Build(dir, without...)
		must.NoError(t, err)
		env = append(env, libraryEnv+"="+library)
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout="+childTimeout())
	child.Env = env
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("in its own process: %v\n%s", err, out)
	}
}
