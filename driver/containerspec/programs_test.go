// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/configtest"
)

// programLines are what the examples in docs/programs.md come to for a slice of 6 GiB of a
// GPU of 24 GiB, of which 20 GiB are free.
var programLines = []struct {
	heading string
	env     map[string]string // of the job
	want    string            // the program, what it was started with, and its own variables
}{
	{"## vLLM", nil, "vllm serve my/model --gpu-memory-utilization 0.2500"},
	{"## PyTorch with several workers", map[string]string{"WORKERS": "4"}, "gunicorn --workers 4 --chdir /local app:app"},
	{"## Ollama", nil, fmt.Sprintf("ollama serve OLLAMA_GPU_OVERHEAD=%d", uint64(14)<<30)},
	{"## llama.cpp", nil, "llama-server --model /local/model.gguf --fit-target 14336"},
	{"## Triton", map[string]string{"INSTANCES": "3"}, fmt.Sprintf("tritonserver --model-repository=/local/models limit %d", uint64(2)<<30)},
}

// The examples are config blocks as the driver takes them, and what they start is given
// the task's slice.
func TestProgramsGetTheirSlice(t *testing.T) {
	t.Parallel()
	page := programsPage(t)
	for _, c := range programLines {
		t.Run(c.heading, func(t *testing.T) {
			t.Parallel()
			block := fenced(t, page, c.heading, "hcl")
			body, found := strings.CutPrefix(block, "config {")
			must.True(t, found)
			job := configtest.Task(t, strings.TrimSuffix(strings.TrimSpace(body), "}"))
			must.Eq(t, []string{"/bin/sh", "-c"}, job.Entrypoint)
			must.Len(t, 1, job.Args)
			must.Eq(t, c.want, startedBy(t, job.Args[0], c.env))
		})
	}
}

// startedBy runs a task's shell line with the variables that the driver sets, and returns how the
// program was started. The programs are stand-ins that print that.
func startedBy(t *testing.T, script string, env map[string]string) string {
	t.Helper()
	root := t.TempDir()
	file := func(path, text string, mode os.FileMode) {
		path = filepath.Join(root, path)
		must.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.NoError(t, os.WriteFile(path, []byte(text), mode))
	}
	file("bin/nvidia-smi", "#!/bin/sh\n[ \"$*\" = '--query-gpu=memory.free --format=csv,noheader,nounits' ] && echo 20480\n", 0o755)
	for name, more := range map[string]string{
		"vllm": ``, "gunicorn": ``, "llama-server": ``,
		"ollama":       ` OLLAMA_GPU_OVERHEAD=$OLLAMA_GPU_OVERHEAD`,
		"tritonserver": ` limit $(cat ` + root + `/local/models/onnx/config.pbtxt)`,
	} {
		file("bin/"+name, "#!/bin/sh\necho \"${0##*/} $*"+more+"\"\n", 0o755)
	}
	file("local/models/onnx/config.pbtxt", "@LIMIT@", 0o644)
	given, _ := environment(env, nil, nil, gpuAccess{bookings: []allocator.Booking{slice(gpuA, 0, 1, 2, 3, 4, 5)}})
	script = strings.NewReplacer("/app/", root+"/bin/", " /local/models/*", " "+root+"/local/models/*").Replace(script)
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	command.Env = slices.Concat(given, []string{"PATH=" + root + "/bin:/usr/bin:/bin"})
	out, err := command.CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	return strings.TrimSpace(string(out))
}

// What Python programs read is there, or the page says that the job sets it.
func TestProgramsReadVariablesThatThereAre(t *testing.T) {
	t.Parallel()
	page := programsPage(t)
	given, _ := environment(nil, nil, nil, gpuAccess{bookings: []allocator.Booking{slice(gpuA, 0, 1)}})
	known := slices.Collect(maps.Keys(parseEnv(given)))
	blocks := fenced(t, page, "## PyTorch with several workers", "python") + fenced(t, page, "## TensorFlow", "python")
	found := regexp.MustCompile(`os\.environ\["([A-Z_]+)"\]`).FindAllStringSubmatch(blocks, -1)
	must.Len(t, 3, found)
	for _, match := range found {
		if match[1] == "WORKERS" {
			must.StrContains(t, page, "`WORKERS` is in the task's `env` block")
			continue
		}
		must.SliceContains(t, known, match[1])
	}
	for _, name := range regexp.MustCompile("(?:sets|driver sets) `([A-Z_]+)`").FindAllStringSubmatch(page, -1) {
		must.SliceContains(t, known, name[1])
	}
}

func programsPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/programs.md")
	must.NoError(t, err)
	return string(text)
}

// fenced is the first block of a language below a heading.
func fenced(t *testing.T, page, heading, language string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n"+heading+"\n")
	must.True(t, found, must.Sprint(heading))
	_, rest, found = strings.Cut(rest, "```"+language+"\n")
	must.True(t, found, must.Sprint(heading))
	block, _, _ := strings.Cut(rest, "```")
	return block
}
