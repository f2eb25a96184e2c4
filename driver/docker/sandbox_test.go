// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/shoenig/test/must"
)

// sandboxDaemon is a daemon with images, by name and by ID, that notes the containers it is asked to make.
type sandboxDaemon struct {
	fakeDaemon
	mu      sync.Mutex
	ids     map[string]string   // image IDs by name; an ID leads to itself while the image is there
	digests map[string][]string // by ID
	made    []container.CreateRequest
	noRunc  bool
}

func newSandboxDaemon() *sandboxDaemon {
	d := &sandboxDaemon{ids: map[string]string{}, digests: map[string][]string{}}
	d.handler = map[string]http.Handler{
		"POST /containers/create": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var got container.CreateRequest
			_ = json.NewDecoder(r.Body).Decode(&got)
			if d.noRunc && got.HostConfig.Runtime == "runc" {
				answer(http.StatusBadRequest, `{"message":"unknown or invalid runtime name: runc"}`)(w, r)
				return
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.made = append(d.made, got)
			answer(http.StatusCreated, `{"Id":"x"}`)(w, r)
		}),
		"GET /containers/sandbox/json": answer(http.StatusNotFound, `{"message":"No such container: sandbox"}`),
		"POST /containers/x/start":     answer(http.StatusNoContent, ""),
		"GET /containers/x/json":       answer(http.StatusOK, `{"Id":"x","State":{"Running":true},"Config":{},"HostConfig":{},"NetworkSettings":{"SandboxKey":"/k"}}`),
	}
	for _, name := range []string{"docker.io/local/pause:1", "docker.io/local/pause:2", "sha256:one", "sha256:two"} {
		d.handler["GET /images/"+name+"/json"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			d.mu.Lock()
			defer d.mu.Unlock()
			id := d.ids[name]
			if id == "" || d.ids[id] == "" {
				answer(http.StatusNotFound, `{"message":"No such image"}`)(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"Id": id, "RepoDigests": d.digests[id], "Config": map[string]any{}})
		})
	}
	return d
}

// has puts an image onto the host under a name.
func (d *sandboxDaemon) has(name, id string, digests ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids["docker.io/"+name], d.ids[id], d.digests[id] = id, id, digests
}

func (d *sandboxDaemon) lost(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.ids, id)
}

func (d *sandboxDaemon) last() container.CreateRequest { return d.made[len(d.made)-1] }

// The pause container can do nothing, whatever its image or the daemon's default runtime is.
func TestSandboxIsConfined(t *testing.T) {
	t.Parallel()
	d := newSandboxDaemon()
	d.has("local/pause:1", "sha256:one")
	c := d.start(t, Config{InfraImage: "local/pause:1"})
	_, created, err := c.CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox", Env: []string{"A=1"}})
	must.NoError(t, err)
	must.True(t, created)
	got := d.last()
	must.Eq(t, "sha256:one", got.Image)
	must.Eq(t, []string{"A=1"}, got.Env)
	must.Eq(t, "runc", got.HostConfig.Runtime)
	must.Eq(t, []string{"ALL"}, got.HostConfig.CapDrop)
	must.Eq(t, []string{"no-new-privileges"}, got.HostConfig.SecurityOpt)
	must.True(t, got.HostConfig.ReadonlyRootfs)
	must.Eq(t, 64<<20, got.HostConfig.Memory)
	must.Eq(t, 64<<20, got.HostConfig.MemorySwap)
	must.Eq(t, 64, *got.HostConfig.PidsLimit)

	d.noRunc = true
	_, _, err = c.CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
	must.NoError(t, err)
	must.Eq(t, "", d.last().HostConfig.Runtime)
}

// The pause image is the one that was used first, also after a restart and when its name leads elsewhere by now.
func TestSandboxImageIsPinned(t *testing.T) {
	t.Parallel()
	d := newSandboxDaemon()
	pin := filepath.Join(t.TempDir(), "state", "infra_image.json")
	boot := func(name string) *Client { return d.start(t, Config{InfraImage: name, InfraPinFile: pin}) }
	use := func(c *Client, want string) {
		t.Helper()
		_, _, err := c.CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
		must.NoError(t, err)
		must.Eq(t, want, d.last().Image)
	}
	d.has("local/pause:1", "sha256:one")
	first := boot("local/pause:1")
	use(first, "sha256:one")
	d.has("local/pause:1", "sha256:two")
	use(first, "sha256:one")
	use(boot("local/pause:1"), "sha256:one")
	must.NoError(t, boot("local/pause:1").RemoveImage(t.Context(), "sha256:one")) // the daemon would say that it cannot

	d.lost("sha256:one")
	_, _, err := boot("local/pause:1").CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
	must.ErrorContains(t, err, "is the image sha256:two now, and it was sha256:one")
	must.ErrorContains(t, err, "remove "+pin)

	d.has("local/pause:2", "sha256:two")
	use(boot("local/pause:2"), "sha256:two")
	must.NoError(t, os.Remove(pin))
	use(boot("local/pause:1"), "sha256:two")

	must.NoError(t, os.WriteFile(pin, []byte("{"), 0o600))
	_, _, err = boot("local/pause:1").CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
	must.ErrorContains(t, err, "remove "+pin)
}

// The file of the first format, without a version, is read; that of a newer version is reported and stays.
func TestSandboxPinOfOtherVersions(t *testing.T) {
	t.Parallel()
	d := newSandboxDaemon()
	d.has("local/pause:1", "sha256:two")
	d.has("sha256:one", "sha256:one")
	d.has("local/pause:2", "sha256:two")
	pin := filepath.Join(t.TempDir(), "infra_image.json")
	create := func(name string) error {
		_, _, err := d.start(t, Config{InfraImage: name, InfraPinFile: pin}).CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
		return err
	}
	must.NoError(t, os.WriteFile(pin, []byte(`{"name":"local/pause:1","id":"sha256:one"}`+"\n"), 0o600))
	must.NoError(t, create("local/pause:1"))
	must.Eq(t, "sha256:one", d.last().Image)
	must.NoError(t, create("local/pause:2"))
	text, err := os.ReadFile(pin)
	must.NoError(t, err)
	must.StrHasPrefix(t, `{"version":1,"name":"local/pause:2"`, string(text))

	const newer = `{"version":2,"name":["local/pause:1"]}`
	must.NoError(t, os.WriteFile(pin, []byte(newer), 0o600))
	for _, name := range []string{"local/pause:1", "local/pause:2"} {
		err := create(name)
		must.ErrorContains(t, err, "written by a newer version, upgrade the plugin")
		must.StrNotContains(t, err.Error(), "remove "+pin)
	}
	text, err = os.ReadFile(pin)
	must.NoError(t, err)
	must.Eq(t, newer, string(text))
}

// Another image store of Docker gives the same image another ID.
func TestSandboxImageInAnotherStore(t *testing.T) {
	t.Parallel()
	d := newSandboxDaemon()
	c := d.start(t, Config{InfraImage: "local/pause:1"})
	d.has("local/pause:1", "sha256:one", "local/pause@sha256:same")
	_, _, err := c.CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
	must.NoError(t, err)
	d.lost("sha256:one")
	d.has("local/pause:1", "sha256:two", "local/pause@sha256:same")
	_, _, err = c.CreateSandbox(t.Context(), SandboxSpec{Name: "sandbox"})
	must.NoError(t, err)
	must.Eq(t, "sha256:two", d.last().Image)
}
