// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/shoenig/test/must"
)

// brokenPipeHelper makes the test binary a process that writes to a stderr without a reader.
const brokenPipeHelper = "GPU_MEM_TEST_BROKEN_PIPE"

func TestMain(m *testing.M) {
	switch os.Getenv(brokenPipeHelper) {
	case "outlive":
		outliveAgent()
		fallthrough
	case "die":
		for range 3 {
			_, _ = fmt.Fprintln(os.Stderr, "a log line")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A crash of the agent leaves the driver with a stderr that has no reader.
func TestDriverOutlivesItsLogPipe(t *testing.T) {
	t.Parallel()
	for helper, survives := range map[string]bool{"die": false, "outlive": true} {
		read, write, err := os.Pipe()
		must.NoError(t, err)
		must.NoError(t, read.Close())
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), brokenPipeHelper+"="+helper)
		process.Stderr = write
		err = process.Run()
		must.NoError(t, write.Close())
		must.Eq(t, survives, err == nil, must.Sprint(helper, ": ", err))
	}
}
