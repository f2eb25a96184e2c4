// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-gpu-mem/driver/config"
)

// What only Docker or the kernel can refuse is reported with the job's key as well.
func TestServiceRefusalsNameTheirKey(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\nallow_privileged = true\nvolumes { enabled = true }" // so that Docker sees what this driver does not know
	d := w.boot()
	for hcl, key := range map[string]string{
		`cpuset_cpus = "900"`:                             "config.cpuset_cpus",
		`storage_opt { nonsense = "1" }`:                  "config.storage_opt",
		`logging { type = "nonsense" }`:                   "config.logging",
		`group_add = ["nonsense"]`:                        "config.group_add",
		`network_mode = "nonet"`:                          "config.network_mode",
		`sysctl { "net.nonsense" = "1" }`:                 "config.sysctl",
		`security_opt = ["nonsense=1"]`:                   "config.security_opt",
		`ulimit { nofile = "99999999999" }`:               "config.ulimit",
		"volumes = [\"vol:/x\"]\nvolume_driver = \"pxd\"": "config.volume_driver",
	} {
		t.Run(key, func(t *testing.T) {
			task, _ := w.script(`true`, hcl)
			_, _, err := d.StartTask(task)
			if err == nil && key == "config.storage_opt" { // Docker with its images in containerd ignores it
				must.NoError(t, d.DestroyTask(task.ID, true))
				return
			}
			must.ErrorContains(t, err, key)
			must.StrNotContains(t, err.Error(), "no such container")
			must.Eq(t, 1, strings.Count(err.Error(), "Error response from daemon"))
		})
	}
}

// A task cannot make itself a way to a device.
func TestServiceForgedDevice(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, _ := w.script(`true`, ``)
	node := filepath.Join(task.AllocDir, "alloc", "render")
	must.NoError(t, unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(226, 128))))
	job, err := config.DecodeTask(task)
	must.NoError(t, err)
	job.Devices = []config.Device{{HostPath: node}}
	must.NoError(t, task.EncodeConcreteDriverConfig(job))
	_, _, err = d.StartTask(task)
	must.ErrorContains(t, err, "not below /dev")
}

func TestServiceMACAddress(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	task, out := w.script(`cat /sys/class/net/eth0/address`, `mac_address = "02:68:b3:29:da:98"`)
	d.run(t, task)
	must.True(t, d.ended(t, task).Successful())
	eventually(t, func() bool { return out.Got() == "02:68:b3:29:da:98\n" })
}
