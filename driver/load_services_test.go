// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/label"
)

// saveImage makes an image under a name, and an archive of it in the task's directory.
func saveImage(t *testing.T, task *drivers.TaskConfig, name string) (id string) {
	t.Helper()
	made := strings.Fields(dockerCommand(t, "create", os.Getenv("GPU_MEM_TEST_IMAGE")))
	container := made[len(made)-1] // after warnings
	dockerCommand(t, "commit", "--message", name+time.Now().String(), container, name)
	dockerCommand(t, "rm", container)
	dockerCommand(t, "save", "--output", filepath.Join(task.TaskDir().LocalDir, "app.tar"), name)
	return dockerCommand(t, "image", "inspect", "--format", "{{.Id}}", name)
}

func anyImages(t *testing.T, name string) string {
	t.Helper()
	return dockerCommand(t, "image", "ls", "--all", "--quiet", "--no-trunc", name)
}

// An archive takes the place of a registry. What was loaded from it goes when the last task
// is gone that used it, also if an operator removed the container.
func TestServiceImageFromAnArchive(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	w.config += "\n" + collecting
	d := w.boot()
	name := fmt.Sprintf("gpu-mem/loaded:%d", time.Now().UnixNano())
	task, out := w.script(`echo written > $NOMAD_TASK_DIR/file; cat /local/file; while :; do sleep 0.05; done`,
		fmt.Sprintf("image = %q\nload = \"app.tar\"", name))
	task.Env["NOMAD_TASK_DIR"] = "/local"
	id := saveImage(t, task, name) // other tests may have images of their own meanwhile, but none with this content
	dockerCommand(t, "image", "rm", name)
	must.StrNotContains(t, anyImages(t, ""), id)
	images := anyImages(t, "")

	d.run(t, task)
	eventually(t, func() bool { return strings.Contains(out.Got(), "written") })
	loaded := dockerCommand(t, "inspect", "--format", "{{.Image}}", label.ContainerName(task.Name, task.AllocID)) // the same ID, but for containerd's image store
	must.StrNotContains(t, images, loaded)
	must.Eq(t, "", anyImages(t, name), must.Sprint("an archive names nothing"))
	dockerCommand(t, "rm", "--force", label.ContainerName(task.Name, task.AllocID))
	result := d.ended(t, task)
	must.False(t, result.Successful())
	eventually(t, func() bool { return !strings.Contains(anyImages(t, ""), loaded) })
}

// What other jobs know by a name stays what it is, though a job has an archive with an
// image of that name.
func TestServiceArchiveOfAnothersImage(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	d := w.boot()
	name := fmt.Sprintf("gpu-mem/others:%d", time.Now().UnixNano())
	task, out := w.script(`echo started; while :; do sleep 0.05; done`, fmt.Sprintf("image = %q\nload = \"app.tar\"\nforce_pull = true", name))
	saveImage(t, task, name)
	dockerCommand(t, "image", "rm", name)
	others := saveImage(t, w.task(``), name)
	t.Cleanup(func() { dockerCommand(t, "image", "rm", name) })

	d.run(t, task)
	eventually(t, func() bool { return out.Got() == "started\n" })
	must.Eq(t, others, dockerCommand(t, "image", "inspect", "--format", "{{.Id}}", name))
	must.NotEq(t, others, dockerCommand(t, "inspect", "--format", "{{.Image}}", label.ContainerName(task.Name, task.AllocID)))

	hostile, _ := w.script(`true`, "image = \"gpu-mem/mine:1\"\nload = \"app.tar\"")
	saveImage(t, hostile, name+"-more")
	t.Cleanup(func() { dockerCommand(t, "image", "rm", name+"-more") })
	_, _, err := d.StartTask(hostile)
	must.ErrorContains(t, err, name+"-more")
}
