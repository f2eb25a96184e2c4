// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package webhook

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/internal/planner"
)

// Planner plans a job and reserves its units.
type Planner interface {
	Reserve(ctx context.Context, job *planner.Document, options planner.Options) (*planner.Plan, error)
}

// Config is the operator's configuration.
type Config struct {
	Options planner.Options
	Token   string        // required of each request; "" allows all
	Timeout time.Duration // of one request
	MaxBody int64         // bytes
	Strict  bool          // a job that cannot be planned is an error, not a warning
}

// New returns the handler of these endpoints:
//
//	POST /v1/patch    {"patch": [JSON Patch], "warnings": [], "errors": []}
//	POST /v1/mutate   the job
//	GET  /healthz     200
func New(logger hclog.Logger, planner Planner, config Config) http.Handler {
	h := &handler{logger: logger, planner: planner, config: config}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/patch", h.guarded(h.patch))
	mux.HandleFunc("POST /v1/mutate", h.guarded(h.mutate))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

type handler struct {
	logger  hclog.Logger
	planner Planner
	config  Config
}

// review is the answer of /v1/patch.
type review struct {
	Patch    []planner.Operation `json:"patch"`
	Warnings []string            `json:"warnings"`
	Errors   []string            `json:"errors"`
}

// guarded checks the token, reads the job and plans it.
func (h *handler) guarded(answer func(w http.ResponseWriter, found review, changed []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.allowed(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "token required, as bearer token or as the password of the URL", http.StatusUnauthorized)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.config.MaxBody))
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
			http.Error(w, fmt.Sprintf("the job is larger than %d bytes (--max-body)", h.config.MaxBody), http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		job, err := planner.ReadJob(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.config.Timeout)
		defer cancel()
		found, changed := h.review(ctx, job)
		answer(w, found, changed)
	}
}

func (h *handler) allowed(r *http.Request) bool {
	if h.config.Token == "" {
		return true
	}
	_, given, basic := r.BasicAuth()
	if !basic {
		given, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	return subtle.ConstantTimeCompare([]byte(given), []byte(h.config.Token)) == 1
}

// review plans the job, and applies the patch to the job as received: a patch that fails
// here would fail at the proxy.
func (h *handler) review(ctx context.Context, job *planner.Document) (found review, changed []byte) {
	found = review{Patch: []planner.Operation{}, Warnings: []string{}, Errors: []string{}}
	plan, err := h.planner.Reserve(ctx, job, h.config.Options)
	if err == nil {
		found.Patch, err = job.Patch(plan)
	}
	if err == nil {
		changed, err = job.Apply(found.Patch)
	}
	switch {
	case err == nil:
		found.Warnings = append(found.Warnings, warnings(plan)...)
		h.logger.Info("planned", "job", *job.Job.ID, "groups", len(plan.Groups), "missing", plan.Missing())
	case h.config.Strict:
		found.Patch = []planner.Operation{}
		found.Errors = append(found.Errors, "cannot plan GPU memory: "+err.Error())
		h.logger.Error("rejected", "job", *job.Job.ID, "reason", err)
	default:
		found.Patch, changed = []planner.Operation{}, job.Text
		found.Warnings = append(found.Warnings, "GPU memory was not planned, so Nomad takes any GPU that fits: "+err.Error())
		h.logger.Warn("not planned", "job", *job.Job.ID, "reason", err)
	}
	return found, changed
}

// warnings names the instances that fit nowhere.
func warnings(plan *planner.Plan) []string {
	var all []string
	for _, group := range plan.Groups {
		for _, s := range group.Short {
			all = append(all, fmt.Sprintf("group %q: %d of its instances fit nowhere now: %s",
				group.Name, s.Instances, strings.Join(s.Why, "; ")))
		}
	}
	return all
}

func (h *handler) patch(w http.ResponseWriter, found review, _ []byte) { h.send(w, found) }

func (h *handler) mutate(w http.ResponseWriter, found review, changed []byte) {
	if len(found.Errors) > 0 {
		http.Error(w, strings.Join(found.Errors, "\n"), http.StatusUnprocessableEntity)
		return
	}
	for _, warning := range found.Warnings {
		w.Header().Add("Warning", fmt.Sprintf("199 nomad-gpu-mem %q", warning))
	}
	h.send(w, json.RawMessage(changed))
}

func (h *handler) send(w http.ResponseWriter, answer any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.logger.Debug("answer not sent", "reason", err)
	}
}
