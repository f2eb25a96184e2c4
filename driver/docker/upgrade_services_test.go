// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package docker

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

// Docker Engine 20.10 is replaced by 28, which refuses the API of 20.10, and 28 by 20.10 again, under one client and a container
// that keeps running.
func TestEngineIsUpgradedAndDowngraded(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(os.Getenv("GPU_MEM_CACHE"), "docker28", "dockerd")); err != nil {
		t.Skip("Docker Engine 28 is not built: run scripts/tools.sh docker28")
	}
	const older, newer = "GPU_MEM_ENGINE=", "GPU_MEM_ENGINE=28"
	c, control := ownEngine(t, older)
	before, err := c.Info(t.Context())
	must.NoError(t, err)
	id := start(t, c, shell("while [ ! -e /tmp/end ]; do sleep 0.05; done; exit 7"))
	first, err := c.Inspect(t.Context(), id)
	must.NoError(t, err)
	ended := make(chan Exit, 1)
	go func() {
		exit, err := c.Wait(t.Context(), id)
		if err == nil {
			ended <- exit
		}
	}()

	control("restart", newer, "DOCKER_MIN_API_VERSION=1.44")
	during, err := c.Info(t.Context())
	must.NoError(t, err)
	must.NotEq(t, before.Version, during.Version)
	must.True(t, during.CDI.Lists, must.Sprint("the newer API is spoken"))
	upgraded, err := c.Inspect(t.Context(), id)
	must.NoError(t, err)
	must.Eq(t, first.Pid, upgraded.Pid)
	must.True(t, upgraded.Running)
	another := start(t, c, shell("exit 3"))
	exit, err := c.Wait(t.Context(), another)
	must.NoError(t, err)
	must.Eq(t, 3, exit.Code)

	control("restart", older)
	after, err := c.Info(t.Context())
	must.NoError(t, err)
	must.Eq(t, before.Version, after.Version)
	must.Eq(t, 0, len(ended), must.Sprint("another engine was taken for an exit"))
	_, err = c.Exec(t.Context(), id, []string{"touch", "/tmp/end"}, 4096)
	must.NoError(t, err)
	must.Eq(t, 7, (<-ended).Code)
}
