// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

// A real daemon does not hang or fail by chance when a test needs it; these answers are written by hand.

const (
	runningJSON = `{"Id":"x","Name":"/x","State":{"Status":"running","Running":true,"Pid":1}}`
	removing    = `{"message":"removal of container x is already in progress"}`
	noSuch      = `{"message":"No such container: x"}`
)

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json") // or the client takes an error's JSON for its text
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// hang answers when the caller has given up, which a server notices once it has read the request.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// first answers with the given handlers in turn, the last one for ever.
func first(handlers ...http.HandlerFunc) http.HandlerFunc {
	var calls atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		handlers[min(int(calls.Add(1)), len(handlers))-1](w, r)
	}
}

// dropped breaks the connection, as a daemon does that is killed.
func dropped(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestContainerThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"GET /containers/x/json":  answer(http.StatusOK, runningJSON),
		"POST /containers/x/kill": answer(http.StatusNoContent, ""),
		"POST /containers/x/wait": http.HandlerFunc(hang),
		"POST /containers/x/stop": http.HandlerFunc(hang),
		"DELETE /containers/x":    http.HandlerFunc(hang),
	}}
	c := daemon.start(t, Config{})
	c.timing.stopGrace, c.timing.removeGrace = 50*time.Millisecond, 50*time.Millisecond
	for _, signal := range []string{"", "SIGTERM"} {
		err := c.Stop(t.Context(), "x", signal, time.Millisecond)
		must.ErrorIs(t, err, ErrStuck)
		must.ErrorContains(t, err, "container x")
	}
	must.ErrorIs(t, c.Remove(t.Context(), "x"), ErrStuck)

	c.timing.stopGrace, c.timing.removeGrace = time.Hour, time.Hour
	bounded, end := context.WithTimeout(t.Context(), 2*time.Second)
	defer end()
	must.ErrorIs(t, c.Remove(bounded, "x"), ErrStuck, must.Sprint("within the caller's time"))

	// The caller's own end is not the container's fault.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.ErrorIs(t, c.Stop(ctx, "x", "", time.Hour), context.Canceled)
}

// An unreachable daemon says nothing of a container, so it is not stuck.
func TestDaemonAwayIsNotStuck(t *testing.T) {
	t.Parallel()
	for name, daemon := range map[string]*fakeDaemon{
		"from the beginning": {handler: map[string]http.Handler{
			"DELETE /containers/x": http.HandlerFunc(dropped), "POST /containers/x/stop": http.HandlerFunc(dropped)}},
		"while it is removed": {handler: map[string]http.Handler{
			"DELETE /containers/x": answer(http.StatusNoContent, ""), "GET /containers/x/json": http.HandlerFunc(dropped),
			"POST /containers/x/stop": http.HandlerFunc(dropped)}},
	} {
		c := daemon.start(t, Config{})
		c.timing.stopGrace, c.timing.removeGrace = time.Second, time.Second // time for the daemon to be found away
		for _, err := range []error{c.Remove(t.Context(), "x"), c.Stop(t.Context(), "x", "", 0)} {
			must.ErrorIs(t, err, ErrUnavailable, must.Sprint(name))
			must.False(t, errors.Is(err, ErrStuck), must.Sprint(name))
		}
	}
}

func TestRemoveWaitsUntilItIsGone(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"DELETE /containers/x": answer(http.StatusConflict, removing),
		"GET /containers/x/json": first(answer(http.StatusOK, runningJSON), answer(http.StatusOK, runningJSON),
			func(w http.ResponseWriter, r *http.Request) {
				gone.Store(true)
				answer(http.StatusNotFound, noSuch)(w, r)
			}),
	}}
	must.NoError(t, daemon.start(t, Config{}).Remove(t.Context(), "x"))
	must.True(t, gone.Load())
}

func TestCreateAfterALostAnswer(t *testing.T) {
	t.Parallel()
	// The daemon fails, then drops the answer to a create that went through, then has that container's name taken.
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"POST /containers/create": first(
			answer(http.StatusInternalServerError, `{"message":"starting up"}`),
			dropped,
			answer(http.StatusConflict, `{"message":"Conflict. The container name \"/x\" is already in use"}`),
			answer(http.StatusCreated, `{"Id":"second"}`)),
		"GET /containers/x/json": first(
			answer(http.StatusOK, `{"Id":"x","State":{"Status":"created"},"Config":{"Labels":{"attempt":"1"}}}`),
			answer(http.StatusNotFound, noSuch)),
		"DELETE /containers/x": answer(http.StatusNoContent, ""),
	}}
	id, err := daemon.start(t, Config{}).Create(t.Context(), Spec{
		Name: "x", Config: &container.Config{Labels: map[string]string{"attempt": "1"}},
	})
	must.NoError(t, err)
	must.Eq(t, "second", id)
}

func TestCreateGivesUp(t *testing.T) {
	t.Parallel()
	for attempts, want := range map[int]int64{0: 6, 2: 3} {
		var asked atomic.Int64
		daemon := &fakeDaemon{handler: map[string]http.Handler{
			"POST /containers/create": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				answer(http.StatusConflict, `{"message":"Conflict. The name \"/x\" is already in use by container ghost"}`)(w, r)
			}),
			"GET /containers/x/json": answer(http.StatusNotFound, noSuch),
		}}
		_, err := daemon.start(t, Config{}).Create(t.Context(), Spec{Name: "x", Config: &container.Config{}, Attempts: attempts})
		must.ErrorIs(t, err, ErrNameTaken)
		must.ErrorContains(t, err, "in use by container ghost")
		must.True(t, Recoverable(err), must.Sprint("a daemon may release a name late"))
		must.Eq(t, want, asked.Load())
	}
}

// What may pass is tried again, and what is left of it then is worth a later start of the task; what is the job's fault is neither.
func TestRetriesOfAStart(t *testing.T) {
	t.Parallel()
	failed := func(message string) http.HandlerFunc {
		return answer(http.StatusInternalServerError, fmt.Sprintf(`{"message":%q}`, message))
	}
	for name, tc := range map[string]struct {
		fail        http.HandlerFunc
		tries       int64
		recoverable bool
		is          error
	}{
		"away":          {dropped, 6, true, ErrUnavailable},
		"no answer":     {hang, 1, true, ErrNoAnswer},
		"port in use":   {failed("driver failed programming external connectivity: Bind for 0.0.0.0:80 failed: port is already allocated"), 6, true, ErrStart},
		"endpoint":      {failed("failed to create endpoint app on network bridge: adding interface failed"), 6, true, ErrStart},
		"runtime hook":  {failed("OCI runtime create failed: error running hook #0: exec: nvidia-ctk: executable file not found"), 6, true, ErrStart},
		"CDI":           {failed("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0"), 6, true, ErrDeviceMissing},
		"no env":        {failed("nvidia-container-cli.real: insufficient privileges to read device list from NVIDIA_VISIBLE_DEVICES envvar: unknown"), 6, true, ErrStart},
		"old CDI":       {failed(`error mounting "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05" to rootfs: no such file or directory`), 6, true, ErrStart},
		"user":          {failed("unable to find user web: no matching entries in passwd file"), 1, false, nil},
		"command":       {failed("exec: nonsense: executable file not found in $PATH"), 1, false, nil},
		"mount":         {failed("error while creating mount source path /x: file exists"), 1, false, nil},
		"bad request":   {answer(http.StatusBadRequest, `{"message":"no such command"}`), 1, false, nil},
		"no uvm":        {answer(http.StatusBadRequest, `{"message":"error gathering device information while adding custom device \"/dev/nvidia-uvm\": no such file or directory"}`), 6, true, ErrStart},
		"upgraded":      {answer(http.StatusBadRequest, `{"message":"nvidia-container-cli: initialization error: nvml error: driver/library version mismatch"}`), 6, true, ErrStart},
		"leftover":      {failed("OCI runtime create failed: container with id exists: x"), 1, true, ErrLeftover},
		"no such thing": {answer(http.StatusNotFound, noSuch), 1, false, ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			daemon := &fakeDaemon{handler: map[string]http.Handler{
				"POST /containers/x/start": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					tc.fail(w, r)
				}),
			}}
			cfg := Config{}
			if errors.Is(tc.is, ErrNoAnswer) {
				cfg.AnswerTimeout = 50 * time.Millisecond
			}
			err := daemon.start(t, cfg).Start(t.Context(), "x")
			must.ErrorContains(t, err, NotReady(err)) // what to do, where that is known
			must.Eq(t, tc.tries, asked.Load())
			must.Eq(t, tc.recoverable, Recoverable(err), must.Sprint(err))
			if tc.is != nil {
				must.ErrorIs(t, err, tc.is)
			}
		})
	}
}

func TestStartAfterATransientError(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"POST /containers/x/start": first(dropped, answer(http.StatusInternalServerError, `{"message":"starting up"}`),
			answer(http.StatusNotModified, "")), // the dropped call went through
	}}
	must.NoError(t, daemon.start(t, Config{}).Start(t.Context(), "x"))
}

func TestWaitSurvivesABrokenConnection(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		// Also a wait that is answered while the container runs, as by a daemon on its way down.
		"POST /containers/x/wait": first(dropped, answer(http.StatusOK, `{"StatusCode":0}`), answer(http.StatusOK, `{"StatusCode":5}`)),
		"GET /containers/x/json": first(dropped, answer(http.StatusOK, runningJSON), answer(http.StatusInternalServerError, `{}`),
			answer(http.StatusOK, `{"Id":"x","State":{"Status":"exited","ExitCode":5}}`)),
	}}
	exit, err := daemon.start(t, Config{}).Wait(t.Context(), "x")
	must.NoError(t, err)
	must.Eq(t, 5, exit.Code)
}

func TestLogsThatStayBroken(t *testing.T) {
	t.Parallel()
	daemon := &fakeDaemon{handler: map[string]http.Handler{
		"GET /containers/x/json": answer(http.StatusOK, `{"Id":"x","State":{"Status":"exited"}}`),
		"GET /containers/x/logs": answer(http.StatusOK, "Error grabbing logs: unexpected character\n"),
	}}
	ignore := func(LogMark, []byte) error { return nil }
	err := daemon.start(t, Config{}).Logs(t.Context(), "x", LogPosition{}, true, ignore, ignore)
	must.ErrorContains(t, err, "Error grabbing logs")
}
