// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

func TestContainersOfACgroup(t *testing.T) {
	t.Parallel()
	one, two := strings.Repeat("1a", 32), strings.Repeat("2b", 32)
	for name, tc := range map[string]struct {
		cgroup string
		ids    []string
	}{
		"version 2, systemd":        {"0::/system.slice/docker-" + one + ".scope", []string{one}},
		"version 2, cgroupfs":       {"0::/docker/" + one, []string{one}},
		"version 2, another parent": {"0::/nomad.slice/share.slice/docker-" + one + ".scope/init", []string{one}},
		"version 1":                 {"12:memory:/docker/" + one + "\n11:cpuset:/docker/" + one + "\n1:name=systemd:/docker/" + one + "\n", []string{one}},
		"version 1, systemd":        {"9:devices:/system.slice/docker-" + one + ".scope", []string{one}},
		"podman":                    {"0::/machine.slice/libpod-" + one + ".scope/container", []string{one}},
		"containerd":                {"0::/kubepods.slice/kubepods-pod9.slice/cri-containerd-" + one + ".scope", []string{one}},
		"a container in another":    {"0::/docker/" + one + "/docker/" + two, []string{one, two}},
		"it was removed":            {"0::/docker/" + one + " (deleted)", []string{one}},
		"a user session":            {"0::/user.slice/user-1000.slice/session-3.scope", nil},
		"the root":                  {"0::/", nil},
		"nothing":                   {"", nil},
		"not quite an ID":           {"0::/docker/" + one + "ff", nil},
	} {
		must.Eq(t, tc.ids, containersOf(tc.cgroup), must.Sprint(name))
	}
}

func TestBookingsInAnEnvironment(t *testing.T) {
	t.Parallel()
	key, value, err := bookingOf(2, 3).Env()
	must.NoError(t, err)
	must.Eq(t, []allocator.Booking{bookingOf(2, 3)}, bookingsIn("PATH=/bin\x00"+key+"="+value+"\x00X"))
	must.Nil(t, bookingsIn("PATH=/bin\x00"))
	must.Nil(t, bookingsIn(""))
	must.Nil(t, bookingsIn(key+"=nonsense\x00"), must.Sprint("what cannot be read explains nothing"))
}

// A process is read once, is forgotten when it is gone, and is unknown
// if it cannot be read.
func TestUsersAreLookedAtOnce(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	put := func(cgroup string) {
		must.NoError(t, os.MkdirAll(filepath.Join(proc, "100"), 0o755))
		must.NoError(t, os.WriteFile(filepath.Join(proc, "100", "environ"), nil, 0o600))
		must.NoError(t, os.WriteFile(filepath.Join(proc, "100", "cgroup"), []byte(cgroup), 0o600))
	}
	put("0::/docker/" + container(1))
	u := newUsers(proc)
	until := func(so func(map[int]user) bool) {
		deadline := time.Now().Add(patience)
		for !so(u.of([]int{100, 200})) {
			must.True(t, time.Now().Before(deadline))
			time.Sleep(time.Millisecond)
		}
	}
	in := func(id string) func(map[int]user) bool {
		return func(known map[int]user) bool { return len(known) == 1 && known[100].containers[0] == id }
	}
	until(in(container(1)))
	put("0::/docker/" + container(2))
	until(in(container(1)))
	u.of(nil)
	until(in(container(2)))
}
