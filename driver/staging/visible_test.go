package staging

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestIsShared(t *testing.T) {
	t.Parallel()
	const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /tmp rw master:5 - tmpfs tmpfs rw
24 22 8:2 / /var/lib rw,relatime - ext4 /dev/sda2 rw
25 24 8:3 / /var/lib/nomad-gpu-mem rw,relatime shared:7 master:1 - ext4 /dev/sda3 rw
26 22 8:4 / /srv rw shared:8 - ext4 /dev/sda4 rw
27 26 8:5 / /srv rw - ext4 /dev/sda5 rw
`
	for dir, want := range map[string]bool{
		"/etc": true, "/tmp/x": false, "/var/lib/other": false, "/var/lib/nomad-gpu-mem/state": true,
		"/var/lib/nomad-gpu-memory": false, "/srv/x": false,
	} {
		must.Eq(t, want, isShared(table, dir), must.Sprint(dir))
	}
}
