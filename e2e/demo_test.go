//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"testing"

	"github.com/shoenig/test/must"
)

// The README's first command: two tasks on one GPU, seen by `status`, and
// nothing is left when it is taken down.
func TestDemo(t *testing.T) {
	for slot, store := range map[string]string{"3": "file", "4": "consul"} {
		t.Run(store, func(t *testing.T) {
			run, err := os.MkdirTemp("", "gpu-mem-demo-")
			must.NoError(t, err)
			t.Cleanup(func() { must.NoError(t, os.RemoveAll(run)) })
			make := func(target string) string {
				cmd := exec.Command("make", "-C", "..", target, "STORE="+store)
				cmd.Env = append(os.Environ(), "GPU_MEM_SLOT="+slot, "GPU_MEM_RUN="+run, "GPU_MEM_GPUS=fake")
				out, err := cmd.CombinedOutput()
				must.NoError(t, err, must.Sprintf("make %s:\n%s", target, out))
				return string(out)
			}
			t.Cleanup(func() {
				make("demo-down")
				must.SliceEmpty(t, pidsNaming(t, run))
			})
			out := make("demo")
			must.StrContains(t, out, "running")
			must.StrContains(t, out, "4")
		})
	}
}
