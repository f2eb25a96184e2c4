// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/allocator"
)

// gpu is a simulated GPU: a device of the host that does nothing when it is opened, and
// that a container may open only if it was given to it.
type gpu struct {
	id   allocator.GPUID
	node node
}

// harmless lists such devices. By default Docker lets no container open one of them.
var harmless = []string{"/dev/btrfs-control", "/dev/autofs", "/dev/vga_arbiter", "/dev/fuse", "/dev/vsock"}

// newGPUs puts such devices under the names by which NVIDIA's runtime finds GPUs.
func newGPUs(t *testing.T, run string) (gpus []gpu) {
	t.Helper()
	uuids := strings.Fields(os.Getenv("GPU_MEM_TEST_GPUS"))
	must.SliceLen(t, 2, uuids, must.Sprint("run these tests by `make test-attack`"))
	for _, path := range harmless {
		real, err := nodeAt(path)
		if err != nil || len(gpus) == len(uuids) {
			continue
		}
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		must.NoError(t, file.Close())
		name := filepath.Join(run, "dev", fmt.Sprintf("nvidia%d", len(gpus)))
		must.NoError(t, os.Remove(name))
		must.NoError(t, unix.Mknod(name, unix.S_IFCHR|0o666, int(unix.Mkdev(real.major, real.minor))))
		gpus = append(gpus, gpu{id: allocator.GPUID(uuids[len(gpus)]), node: real})
	}
	must.SliceLen(t, len(uuids), gpus, must.Sprintf("two of %v must be there to stand for GPUs", harmless))
	return gpus
}

// slice is Nomad's booking of a GPU.
func (g gpu) slice(units ...int) allocator.Booking {
	return allocator.Booking{GPU: g.id, UnitMiB: 1024, Of: 16, TotalMiB: 16384, Units: allocator.NewUnitSet(units...)}
}

// reached are the GPUs that a container sees under their names or can open, also by nodes
// that it makes itself, and those that the host's kernel lets it open.
func (s *stage) reached(container string) ([]int, error) {
	script := "for n in /dev/nvidia*; do [ -e $n ] && echo sees ${n#/dev/nvidia}; ( exec <$n ) 2>/dev/null && echo opens ${n#/dev/nvidia}; done\n"
	for i, g := range s.gpus {
		script += fmt.Sprintf("mknod /gpu-probe c %d %d && ( exec </gpu-probe ) 2>/dev/null && echo opens %d; rm -f /gpu-probe\n",
			g.node.major, g.node.minor, i)
	}
	out, err := exec.Command("docker", "exec", "--user=0", container, "/bin/sh", "-c", script+"exit 0").Output()
	if err != nil {
		return nil, fmt.Errorf("looking for GPUs in %s: %w", container, err)
	}
	found := map[int]bool{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		_, number, _ := strings.Cut(lines.Text(), " ")
		for i := range s.gpus {
			found[i] = found[i] || number == fmt.Sprint(i)
		}
	}
	seen, err := s.inspect(container)
	if err != nil {
		return nil, err
	}
	for i, g := range s.gpus {
		open, err := allowed(seen.State.Pid, g.node)
		if err != nil {
			return nil, err
		}
		if found[i] = found[i] || open; !found[i] {
			delete(found, i)
		}
	}
	var all []int
	for i := range found {
		all = append(all, i)
	}
	slices.Sort(all)
	return all, nil
}

// ways are those by which the engine can give GPUs to containers.
func (s *stage) ways() []string {
	info, err := s.api.Info(s.ctx)
	must.NoError(s.t, err)
	if len(info.CDISpecDirs) > 0 {
		return []string{"runtime", "cdi"}
	}
	return []string{"runtime"}
}

// sees checks that a running container has these GPUs and no others. A container that was
// not started has none.
func sees(want ...int) look {
	return func(s *scene, in *intruder) error {
		if !in.runs() {
			return nil
		}
		got, err := s.stage.reached(in.container.ID)
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the container reaches the GPUs %v, and was given %v", got, want)
		}
		return nil
	}
}

// hasDeviceLists reports whether the kernel shows what a container may open: only control
// groups of version 1 do.
func hasDeviceLists() bool {
	_, err := os.Stat("/sys/fs/cgroup/devices/devices.list")
	return err == nil
}

// allowed reports whether the kernel lets a process open a device: by the control group
// of version 1 that it is in. In version 2 this cannot be read.
func allowed(pid int, n node) (bool, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || !slices.Contains(strings.Split(parts[1], ","), "devices") {
			continue
		}
		list, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/devices", parts[2], "devices.list"))
		if err != nil {
			return false, err
		}
		return listAllows(string(list), n), nil
	}
	return false, nil
}

// listAllows reads a devices.list. The right to make a node, m, is not the right to open it.
func listAllows(list string, n node) bool {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.ContainsAny(fields[2], "rw") {
			continue
		}
		major, minor, _ := strings.Cut(fields[1], ":")
		if (fields[0] == "a" || fields[0] == string(n.kind)) &&
			(major == "*" || major == fmt.Sprint(n.major)) && (minor == "*" || minor == fmt.Sprint(n.minor)) {
			return true
		}
	}
	return false
}
