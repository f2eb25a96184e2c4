// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"errors"
	"testing"

	"github.com/shoenig/test/must"
)

func TestBlame(t *testing.T) {
	t.Parallel()
	must.NoError(t, Blame(nil))
	for docker, key := range map[string]string{
		`logger: no log driver named 'nonsense' is registered`:                            "config.logging",
		`--storage-opt is supported only for overlay over xfs with 'pquota' mount option`: "config.storage_opt",
		`error looking up logging plugin nonsense: plugin "nonsense" not found`:           "config.logging",
		`Unknown option nonsense`: "config.storage_opt",
		`error during container init: open /proc/sys/net/nonsense: no such file`:            "config.sysctl",
		`Requested CPUs are not available - requested 900, available: 0-1`:                  "config.cpuset_cpus",
		`unable to find user nonsense: no matching entries in passwd file`:                  "user",
		`exec: "nonsense": executable file not found in $PATH`:                              "config.command",
		`Duplicate mount point: /x`:                                                         "config.mount or config.volumes",
		`Bind for 0.0.0.0:80 failed: port is already allocated`:                             "config.ports",
		`OCI runtime create failed: seccomp: unknown action`:                                "config.security_opt",
		`Unable to find group nonsense: no matching entries in group file`:                  "config.group_add",
		`conflicting options: dns and the network mode`:                                     "config.dns_servers",
		`conflicting options: custom host-to-IP mapping and the network mode`:               "config.extra_hosts",
		`conflicting options: hostname and the network mode`:                                "config.hostname",
		`conflicting options: mac-address and the network mode`:                             "config.mac_address",
		`network nonet not found`:                                                           "config.network_mode",
		`error looking up volume plugin pxd: plugin "pxd" not found`:                        "config.volume_driver",
		`invalid IPv4 address: user specified IP address is supported only with own subnet`: "config.ipv4_address",
	} {
		err := errors.New("Error response from daemon: " + docker)
		must.ErrorContains(t, Blame(err), "Docker refuses "+key)
		must.ErrorIs(t, Blame(err), err)
	}
	unseen := errors.New(`error mounting "/s/staging/attempts/0/1" to rootfs at "/d": stat /s/staging/attempts/0/1: not a directory: unknown`)
	must.ErrorContains(t, Blame(unseen), "share a mount namespace")
	unknown := errors.New("no space left on device")
	must.True(t, Blame(unknown) == unknown)
}
