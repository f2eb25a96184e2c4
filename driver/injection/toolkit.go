// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package injection

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-version"

	"nomad-gpu-mem/driver/config"
	"nomad-gpu-mem/driver/docker"
)

// safeToolkit is the first version of the NVIDIA Container Toolkit with hooks that do not
// run with the container's environment. With earlier ones LD_PRELOAD of a task that has a
// GPU, or of its image, is code that root runs on the host: CVE-2025-23266.
var safeToolkit = version.Must(version.NewVersion("1.17.8"))

// askTimeout bounds how long a program may take to print its version.
const askTimeout = 10 * time.Second

// Toolkits knows the versions of the toolkit's programs by path: each is asked once.
type Toolkits struct {
	mu    sync.Mutex
	known map[string]*version.Version // nil: it did not tell
}

var toolkitVersion = regexp.MustCompile(`(?m)^NVIDIA Container Runtime version v?(\d+\.\d+\.\d+)`)

// ask runs the runtime that the operator configured in Docker, if it is on this host.
func (t *Toolkits) ask(ctx context.Context, path string) *version.Version {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found, asked := t.known[path]; asked {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	out, _ := exec.CommandContext(ctx, path, "--version").Output() // the low-level runtime, which it asks as well, may fail
	if ctx.Err() != nil {
		return nil // another time
	}
	var found *version.Version
	if match := toolkitVersion.FindSubmatch(out); match != nil {
		found, _ = version.NewVersion(string(match[1]))
	}
	if t.known == nil {
		t.known = map[string]*version.Version{}
	}
	t.known[path] = found
	return found
}

// Warning is what an operator should know of the toolkit on this node; empty if
// there is nothing to tell, or if its version is not known.
func (t *Toolkits) Warning(ctx context.Context, s config.Settings, info docker.Info) string {
	path := info.RuntimePaths[s.NvidiaRuntime]
	if path == "" || s.Endpoint != "" && !strings.HasPrefix(s.Endpoint, "unix://") {
		return ""
	}
	found := t.ask(ctx, path)
	if found == nil || !found.LessThan(safeToolkit) {
		return ""
	}
	return fmt.Sprintf("the NVIDIA Container Toolkit %s lets tasks with a GPU run code as root on the host (CVE-2025-23266): "+
		"update it to %s or newer", found, safeToolkit)
}
