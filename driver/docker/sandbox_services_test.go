// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

func TestSandbox(t *testing.T) {
	t.Parallel()
	c := engine(t)
	labels := map[string]string{"docker-test-sandbox": uniqueName()}
	spec := SandboxSpec{Name: uniqueName(), Hostname: "group-1", Labels: labels, PullTimeout: time.Minute}
	made, created, err := c.CreateSandbox(t.Context(), spec)
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, c.RemoveSandbox(context.Background(), made.ID)) })
	must.True(t, created)
	_, err = os.Stat(made.Key)
	must.NoError(t, err)

	again, created, err := c.CreateSandbox(t.Context(), spec)
	must.NoError(t, err)
	must.False(t, created)
	must.Eq(t, made, again)
	found, err := c.Inspect(t.Context(), spec.Name)
	must.NoError(t, err)
	must.Eq(t, made, Sandbox{found.ID, found.SandboxKey})
	for label, value := range labels {
		must.Eq(t, value, found.Labels[label])
	}

	// It can do nothing.
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", found.Pid))
	must.NoError(t, err)
	must.StrContains(t, string(status), "CapBnd:\t0000000000000000\n")
	must.StrContains(t, string(status), "NoNewPrivs:\t1\n")
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", found.Pid))
	must.NoError(t, err)
	must.RegexMatch(t, regexp.MustCompile(`(?m)^\d+ \d+ \d+:\d+ /\S* / ro,`), string(mounts))

	// A task shares its namespace and its host name.
	task := shell("hostname")
	task.Host.NetworkMode = container.NetworkMode("container:" + made.ID)
	stdout, _ := output(t, c, start(t, c, task), false)
	must.Eq(t, "group-1\n", stdout)

	// One that has ended is found for removal, and replaced when it is wanted again.
	must.NoError(t, c.Stop(t.Context(), made.ID, "", time.Second))
	found, err = c.Inspect(t.Context(), spec.Name)
	must.NoError(t, err)
	must.Eq(t, made.ID, found.ID)
	renewed, created, err := c.CreateSandbox(t.Context(), spec)
	must.NoError(t, err)
	must.True(t, created)
	must.NotEq(t, made.ID, renewed.ID)

	must.NoError(t, c.RemoveSandbox(t.Context(), renewed.ID))
	must.NoError(t, c.RemoveSandbox(t.Context(), renewed.ID))
	_, err = c.Inspect(t.Context(), spec.Name)
	must.ErrorIs(t, err, ErrNotFound)
}

func TestSandboxWithoutImage(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{InfraImage: "is.not.there.invalid/pause:1"})
	_, created, err := c.CreateSandbox(t.Context(), SandboxSpec{Name: uniqueName(), PullTimeout: 30 * time.Second})
	must.False(t, created)
	must.ErrorIs(t, err, ErrImage)
	must.ErrorContains(t, err, "infra_image")
}
