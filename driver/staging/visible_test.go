// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package staging

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestFollows(t *testing.T) {
	t.Parallel()
	const ours = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /var/lib/nomad-gpu-mem/staging rw,relatime shared:7 master:3 - tmpfs tmpfs rw
24 22 0:22 / /srv/staging rw - tmpfs tmpfs rw
`
	for theirs, want := range map[string]bool{
		``: false,
		`90 80 8:1 / / rw shared:1 - ext4 /dev/sda1 rw`:                      false, // the disk, but not the area
		`90 80 0:21 / /var/lib/nomad-gpu-mem/staging rw - tmpfs tmpfs rw`:    false, // a private copy
		`90 80 0:21 / /a rw shared:9 - tmpfs tmpfs rw`:                       false, // one that is shared with others
		`90 80 0:21 / /a rw shared:7 master:3 - tmpfs tmpfs rw`:              true,
		`90 80 0:21 / /a rw master:7 - tmpfs tmpfs rw`:                       true,
		`90 80 0:21 / /a rw shared:9 master:7 - tmpfs tmpfs rw`:              true,
		`90 80 0:21 / /a rw shared:9 master:8 propagate_from:7 - tmpfs t rw`: true,
		`90 80 0:21 / /a rw shared:3 - tmpfs tmpfs rw`:                       false, // from where ours come
		`90 80 0:21 / /a rw master:3 - tmpfs tmpfs rw`:                       false,
		`90 80 0:22 / /srv/staging rw shared:7 - tmpfs tmpfs rw`:             false, // nothing is passed on from there
	} {
		must.Eq(t, want, follows(theirs, ours, "0:21") || follows(theirs, ours, "0:22"), must.Sprint(theirs))
	}
}
