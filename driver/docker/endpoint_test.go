// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

func TestEnginePid(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sock")
	must.Eq(t, 0, ListenerPID("unix://"+path))
	listener, err := net.Listen("unix", path)
	must.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	must.Eq(t, os.Getpid(), ListenerPID("unix://"+path))
	must.Eq(t, 0, ListenerPID("tcp://127.0.0.1:2376"))
}
