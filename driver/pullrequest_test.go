// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// What of a job is about its image goes with the request for it.
func TestEveryImageOptionInDocker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.boot()
	task := w.task(``)
	must.NoError(t, task.EncodeConcreteDriverConfig(&config.TaskConfig{
		Image: "https://local/app:1", ImagePullTimeout: "10m", ForcePull: true, Load: "app.tar", AuthSoftFail: true,
		Auth: config.Auth{Username: "u", Password: "p", Email: "e@example.org", ServerAddress: "registry.local:5000"},
	}))
	must.NoError(t, os.WriteFile(filepath.Join(task.TaskDir().LocalDir, "app.tar"), []byte("tar"), 0o600))
	_, _, err := d.StartTask(task)
	must.NoError(t, err)
	request := w.engine.lastPull()
	archive, err := request.Load()
	must.NoError(t, err)
	must.NoError(t, archive.Close())
	request.Load, request.Progress = nil, nil
	must.Eq(t, docker.PullRequest{
		Ref: "local/app:1", Force: true, AuthSoftFail: true, Timeout: 10 * time.Minute, IdleTimeout: 2 * time.Minute,
		Auth: &docker.Auth{Username: "u", Password: "p", ServerAddress: "registry.local:5000"},
	}, request)
}

// Without a login of the job's own, the client's are asked for one. A job that names
// a registry only wants none.
func TestNoImageOptionInDocker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config = "image_pull_timeout = \"7m\"\npull_activity_timeout = \"3m\""
	for hcl, auth := range map[string]*docker.Auth{
		``: nil, `auth {}`: nil,
		`auth { server_address = "registry.local:5000" }`: {ServerAddress: "registry.local:5000"},
		`auth { email = "e@example.org" }`:                {},
	} {
		_, _, err := w.boot().StartTask(w.task(hcl))
		must.NoError(t, err)
		request := w.engine.lastPull()
		request.Progress = nil
		must.Eq(t, docker.PullRequest{Ref: "local/app:1", Timeout: 7 * time.Minute, IdleTimeout: 3 * time.Minute, Auth: auth}, request)
	}
}
