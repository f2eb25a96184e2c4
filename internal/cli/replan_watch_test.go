// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/planner/live"
)

// lines collects output, and signals each line.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	line chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	for {
		line, err := l.text.ReadString('\n')
		if err != nil {
			l.text.WriteString(line)
			return len(p), nil
		}
		l.line <- line
	}
}

// replan --watch checks all jobs at first, acts on events, and exits cleanly.
func TestReplanWatch(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	file := writeJob(t, webJob)
	code, _, stderr := w.run(t, "run", "--shortlist=1", "--var=replicas=1", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))

	ctx, stop := context.WithCancel(t.Context())
	out, ended := &lines{line: make(chan string, 100)}, make(chan int, 1)
	var errs strings.Builder
	go func() {
		ended <- w.app().Run(ctx, []string{"replan", "--watch", "--json", "--shortlist=2", "--threshold=2"}, out, &errs)
	}()
	next := func() (one live.Replanned) {
		t.Helper()
		select {
		case line := <-out.line:
			must.NoError(t, json.Unmarshal([]byte(line), &one), must.Sprint(line))
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is printed")
		}
		return one
	}
	one := next()
	must.True(t, one.Changed)
	must.StrContains(t, one.Why[0], "1 of 1 nodes")

	code, _, stderr = w.run(t, "run", "--shortlist=1", "--var=replicas=1", writeJob(t, strings.Replace(webJob, `"web"`, `"other"`, 1)))
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	one = next()
	must.Eq(t, "other", one.Job)
	must.True(t, one.Changed)
	nomad.Emit(api.TopicNode, "NodeRegistration", "n", nil) // nothing is to be done for it
	stop()
	must.Eq(t, ExitOK, <-ended, must.Sprint(errs.String()))
	must.Eq(t, "", errs.String())

	code, _, stderr = w.run(t, "replan", "--interval=0s")
	must.Eq(t, ExitUsage, code)
	must.StrContains(t, stderr, "--interval must be positive")
}
