// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
)

// future are fields that no version of Nomad has, with numbers that no float64 holds.
func future() map[string]any {
	return map[string]any{"Big": json.Number("18446744073709551615"), "Time": json.Number("9007199254740993"), "List": []any{map[string]any{"A": "<&>"}}}
}

// fill gives every field of a value something that is not its zero value.
func fill(v reflect.Value, inside ...reflect.Type) {
	switch v.Kind() {
	case reflect.Pointer:
		if slices.Contains(inside, v.Type()) {
			return // a type within itself
		}
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), append(inside, v.Type())...)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), inside...)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), inside...)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, inside...)
		fill(value, inside...)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf(future()))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int64:
		v.SetInt(1<<53 + 1)
	case reflect.Uint64:
		v.SetUint(math.MaxUint64 - 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(0.1)
	default:
		fillSmall(v)
	}
}

func fillSmall(v reflect.Value) {
	if v.CanInt() {
		v.SetInt(7)
	}
	if v.CanUint() {
		v.SetUint(7)
	}
}

// everyField is a job with every field of Nomad's API, and with others at every level.
// Fields that decide whether and where it runs make sense. Those of a template, which is
// started later, are set if it is to be one.
func everyField(t *testing.T, template bool) map[string]any {
	t.Helper()
	var job api.Job
	fill(reflect.ValueOf(&job).Elem())
	name, space, kind, region, pool, stop := "every", "default", "service", "global", "default", false
	job.ID, job.Name, job.Namespace, job.Type, job.Region, job.NodePool, job.Stop = &name, &name, &space, &kind, &region, &pool, &stop
	job.Datacenters = []string{"dc1"}
	parent := ""
	job.ParentID = &parent // replan passes over children, and over templates
	if !template {
		job.Periodic, job.ParameterizedJob = nil, nil
	}
	linux := api.NewConstraint("${attr.kernel.name}", "=", "linux")
	job.Constraints = []*api.Constraint{linux}
	group := job.TaskGroups[0]
	one := 1
	group.Name, group.Count, group.Constraints = &name, &one, []*api.Constraint{linux}
	task := group.Tasks[0]
	task.Driver, task.Constraints = "gpu-docker", []*api.Constraint{linux}
	count := uint64(3)
	device := task.Resources.Devices[0]
	device.Name, device.Count = allocator.Device, &count
	device.Constraints = []*api.Constraint{api.NewConstraint("${device.attr.units}", ">=", "3")}

	text, err := json.Marshal(&job)
	must.NoError(t, err)
	tree := treeOf(t, text)
	for _, node := range append(levels(tree), first(first(tree, "TaskGroups"), "Constraints"), first(first(tree, "TaskGroups"), "Affinities")) {
		node["FromTheFuture"] = future()
	}
	return tree
}

func treeOf(t *testing.T, text []byte) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree map[string]any
	must.NoError(t, decoder.Decode(&tree), must.Sprint(string(text)))
	return tree
}

func textOf(t *testing.T, tree any) []byte {
	t.Helper()
	text, err := json.Marshal(tree)
	must.NoError(t, err)
	return text
}

func first(node map[string]any, list string) map[string]any {
	return node[list].([]any)[0].(map[string]any)
}

// levels are the job, its group, the group's task, its resources and their device.
func levels(job map[string]any) []map[string]any {
	group := first(job, "TaskGroups")
	task := first(group, "Tasks")
	resources := task["Resources"].(map[string]any)
	return []map[string]any{job, group, task, resources, first(resources, "Devices")}
}

// unplanned is a job without what the planner writes and what Nomad counts.
func unplanned(t *testing.T, text []byte) map[string]any {
	t.Helper()
	job := treeOf(t, text)
	for _, name := range []string{"Version", "JobModifyIndex", "ModifyIndex", "CreateIndex", "Status", "ConsulToken", "VaultToken"} {
		delete(job, name)
	}
	group, device := levels(job)[1], levels(job)[4]
	for _, pins := range []struct {
		of     map[string]any
		target string
	}{{group, "${node.unique.id}"}, {device, "${device.model}"}} {
		for _, list := range []string{"Constraints", "Affinities"} {
			entries, _ := pins.of[list].([]any)
			pins.of[list] = slices.DeleteFunc(entries, func(e any) bool { return e.(map[string]any)["LTarget"] == pins.target })
		}
	}
	meta := group["Meta"].(map[string]any)
	delete(meta, planner.MetaPlanned)
	delete(meta, planner.MetaLimits)
	return job
}

func hasPins(text []byte) bool { return strings.Contains(string(text), "${node.unique.id}") }

// A job that is planned keeps every field to the letter, also those of a Nomad that is
// newer than this program.
func TestEveryFieldStays(t *testing.T) {
	t.Parallel()
	job := textOf(t, everyField(t, false))
	want := unplanned(t, job)
	for _, from := range []string{"JSON", "HCL"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			w, nomad := planned(t)
			file := filepath.Join(t.TempDir(), "job")
			content := job
			if from == "HCL" {
				content = []byte(`job "every" {}`)
				nomad.Parse = func(request api.JobsParseRequest) json.RawMessage {
					must.Eq(t, string(content), request.JobHCL)
					return job
				}
			}
			must.NoError(t, os.WriteFile(file, content, 0o600))
			code, _, stderr := w.run(t, "plan", file)
			must.Eq(t, ExitOK, code, must.Sprint(stderr))
			must.Eq(t, "null", string(nomad.Stored("every")))

			code, _, stderr = w.run(t, "run", "--shortlist=1", file)
			must.SliceContains(t, []int{ExitOK, ExitWaiting}, code, must.Sprint(stderr))
			registered := nomad.Stored("every")
			must.True(t, hasPins(registered))
			must.Eq(t, want, unplanned(t, registered))

			code, stdout, _ := w.run(t, "replan", "--shortlist=3", "--threshold=3")
			must.StrContains(t, stdout, "default/every: has new pins", must.Sprint(code))
			must.NotEq(t, string(registered), string(nomad.Stored("every")))
			must.Eq(t, want, unplanned(t, nomad.Stored("every")))
		})
	}
}

// So does a template.
func TestEveryFieldOfATemplateStays(t *testing.T) {
	t.Parallel()
	job := textOf(t, everyField(t, true))
	w, nomad := planned(t)
	file := filepath.Join(t.TempDir(), "job.json")
	must.NoError(t, os.WriteFile(file, job, 0o600))
	code, stdout, stderr := w.run(t, "run", file)
	must.Eq(t, ExitOK, code, must.Sprint(stderr))
	must.StrContains(t, stdout, "Nomad starts it later")
	must.StrContains(t, string(nomad.Stored("every")), planner.MetaPlanned)
	must.Eq(t, unplanned(t, job), unplanned(t, nomad.Stored("every")))
}

// The same through the webhook, for both of its contracts.
func TestEveryFieldStaysInTheWebhook(t *testing.T) {
	t.Parallel()
	job := textOf(t, everyField(t, false))
	w, _ := planned(t)
	address, stop := serveWebhook(t, w)
	defer stop()
	mutated := post(t, "http://"+address+"/v1/mutate", job)
	must.True(t, hasPins(mutated))
	must.Eq(t, unplanned(t, job), unplanned(t, mutated))

	var review struct{ Patch []planner.Operation }
	must.NoError(t, json.Unmarshal(post(t, "http://"+address+"/v1/patch", job), &review))
	document, err := planner.ReadJob(job)
	must.NoError(t, err)
	patched, err := document.Apply(review.Patch)
	must.NoError(t, err)
	must.Eq(t, treeOf(t, mutated), treeOf(t, patched))
}

// serveWebhook starts the service of a world, and returns what ends it.
func serveWebhook(t *testing.T, w *world) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	address = listener.Addr().String()
	must.NoError(t, listener.Close())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	var out strings.Builder
	go func() { ended <- w.app().Run(ctx, []string{"webhook", "--listen", address}, &out, &out) }()
	return address, func() {
		t.Helper()
		cancel()
		must.Eq(t, ExitOK, <-ended)
		must.StrContains(t, out.String(), "stopped")
	}
}

// post sends JSON, as soon as there is a server.
func post(t *testing.T, url string, body []byte) []byte {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(20 * time.Second); ; {
		response, err := client.Post(url, "application/json", bytes.NewReader(body))
		if err != nil && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		must.NoError(t, err)
		defer response.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		must.NoError(t, err)
		must.Eq(t, http.StatusOK, response.StatusCode, must.Sprint(text.String()))
		return text.Bytes()
	}
}

// replan leaves a job unchanged that would lose something, and says what: an older agent
// omits fields that the servers have.
func TestReplanRefusesToLoseFields(t *testing.T) {
	t.Parallel()
	w, nomad := planned(t)
	file := filepath.Join(t.TempDir(), "job.json")
	must.NoError(t, os.WriteFile(file, textOf(t, everyField(t, false)), 0o600))
	_, _, _ = w.run(t, "run", "--shortlist=1", file)
	before := nomad.Stored("every")
	nomad.Forget("FromTheFuture")
	for _, args := range [][]string{{"replan", "--dry-run"}, {"replan"}} {
		code, stdout, _ := w.run(t, append(args, "--shortlist=3", "--threshold=3")...)
		must.Eq(t, ExitFailure, code, must.Sprint(stdout))
		must.StrContains(t, stdout, "default/every: left unchanged: fields of the job would be lost")
		must.StrContains(t, stdout, "FromTheFuture")
		must.Eq(t, string(before), string(nomad.Stored("every")))
	}
}
