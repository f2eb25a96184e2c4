// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

// The tests with the tag "services" run against a real Docker engine: DOCKER_HOST, with the images and the runtime that
// scripts/with-dockerd.sh prepares. `make test-driver` starts it.

// engine returns a client for the real engine.
func engine(t *testing.T) *Client {
	t.Helper()
	must.NotEq(t, "", os.Getenv("DOCKER_HOST"), must.Sprint("run these tests by `make test-driver`"))
	return newClient(t, Config{InfraImage: os.Getenv("GPU_MEM_TEST_PAUSE_IMAGE")})
}

// uniqueName is a container name that no other test has.
func uniqueName() string { return "docker-test_" + rand.Text() }

// shell is a container that runs a shell script.
func shell(script string) Spec {
	name := uniqueName()
	return Spec{
		Name: name,
		Config: &container.Config{
			Image:  os.Getenv("GPU_MEM_TEST_IMAGE"),
			Cmd:    []string{"/bin/sh", "-c", script},
			Labels: map[string]string{"docker-test": name},
		},
		Host: &container.HostConfig{NetworkMode: "none"},
	}
}

// forever is a script that lives until it is killed.
const forever = "sleep 2147483647"

// create makes a container and removes it with the test.
func create(t *testing.T, c *Client, spec Spec) string {
	t.Helper()
	id, err := c.Create(t.Context(), spec)
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, c.Remove(context.Background(), id)) })
	return id
}

// start makes a container and starts it.
func start(t *testing.T, c *Client, spec Spec) string {
	t.Helper()
	id := create(t, c, spec)
	must.NoError(t, c.Start(t.Context(), id))
	return id
}

// output is everything that a container wrote, once it has ended.
func output(t *testing.T, c *Client, id string, tty bool) (stdout, stderr string) {
	t.Helper()
	keep := func(into *string) LineSink {
		return func(_ LogMark, data []byte) error {
			*into += string(data)
			return nil
		}
	}
	must.NoError(t, c.Logs(t.Context(), id, LogPosition{}, tty, keep(&stdout), keep(&stderr)))
	return stdout, stderr
}

// awaitLine returns once a container has written a line.
func awaitLine(t *testing.T, c *Client, id, line string) {
	t.Helper()
	seen := fmt.Errorf("seen")
	look := func(_ LogMark, data []byte) error {
		if slices.Contains(strings.Split(string(data), "\n"), line) { // lines that came together are one piece
			return seen
		}
		return nil
	}
	must.ErrorIs(t, c.Logs(t.Context(), id, LogPosition{}, false, look, look), seen)
}
