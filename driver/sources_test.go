package driver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// What a job mounts takes room in the host's own table of mounts: each source once, and
// not without end.
func TestStagedSourcesAreBounded(t *testing.T) {
	t.Parallel()
	volumes := func(n, sources int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"data/%d:/m/%d"`, i%sources, i))
		}
		return "volumes = [" + strings.Join(all, ", ") + "]"
	}
	for _, c := range []struct {
		hcl      string
		accepted bool
	}{
		{volumes(2*mostStaged, mostStaged/2), true},
		{volumes(mostStaged, mostStaged), false}, // and the shared directory, which every task has
	} {
		w := newWorld(t)
		d := w.boot()
		_, _, err := d.StartTask(w.task(c.hcl))
		if c.accepted {
			must.NoError(t, err)
			continue
		}
		must.ErrorContains(t, err, "mount directories above them")
		w.nothingLeft()
	}
}
