// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/config"
)

// environment is the container's environment as Docker wants it, and remarks for
// the task's owner on values that were overruled.
//
// task is the task's variables as Nomad merged them, from the job, its templates and
// device plugins; device is the part that device plugins wrote.
//
// The order is what makes it safe: the task's variables first, without the reserved ones;
// then defaults for what neither task nor image set; then the pin. A bare key takes
// a variable of the image away.
func environment(task, device map[string]string, image []string, gpus gpuAccess) (env, remarks []string) {
	task = asRead(task)
	fromImage := parseEnv(image)
	merged := map[string]string{}
	for key, value := range task {
		if !reservedKey(key) {
			merged[key] = value
		}
	}
	isSet := func(key string) bool {
		_, inTask := merged[key]
		_, inImage := fromImage[key]
		return inTask || inImage
	}
	pin := gpus.pin()
	maps.Copy(merged, defaultEnv(gpus.bookings, isSet))
	maps.Copy(merged, pin)

	for key, value := range merged {
		env = append(env, key+"="+value)
	}
	for key := range fromImage {
		if _, ok := merged[key]; !ok && reservedKey(key) {
			env = append(env, key)
		}
	}
	slices.Sort(env)
	return env, overruled(task, device, pin, gpus.decidedBy())
}

// gpuAccess is what a container sees of GPUs.
type gpuAccess struct {
	bookings []allocator.Booking
	way      config.Injection
	seesAll  bool              // it can use every GPU, whatever its environment says
	observer map[string]string // pin of an observer; nil: it is none
}

func (g gpuAccess) pin() map[string]string {
	if g.observer != nil {
		return g.observer
	}
	return pinEnv(g.bookings, g.way, g.seesAll)
}

// decidedBy ends what an author reads of an overruled variable.
func (g gpuAccess) decidedBy() string {
	if g.observer != nil {
		return "the client's gpu_observer decides what an observer sees"
	}
	return onlyByBlocks
}

// checkEnv refuses what the kernel cannot pass to a program. Docker would try the start
// again and again.
func checkEnv(env map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(env)) {
		if strings.Contains(key+env[key], "\x00") {
			return fmt.Errorf("env %q: a variable cannot have a NUL byte", key)
		}
	}
	return nil
}

// overruled tells which values of the task's own environment had no effect. What a
// device plugin put there, and an explicit "no GPU", is not worth a word.
func overruled(task, device, pin map[string]string, decidedBy string) []string {
	var remarks []string
	for _, key := range slices.Sorted(maps.Keys(task)) {
		value := task[key]
		observers := key == driverCapabilities && pin[key] != ""
		if !reservedKey(key) && !observers || value == pin[key] || value == device[key] {
			continue
		}
		if key == VisibleDevices && pin[key] == NoDevices && (value == "" || value == "none") {
			continue
		}
		effect := "removed"
		if pinned, ok := pin[key]; ok {
			effect = fmt.Sprintf("replaced by %q", pinned)
		}
		remarks = append(remarks, fmt.Sprintf("%s=%q in the task's environment was %s: %s", key, value, effect, decidedBy))
	}
	return remarks
}

// asRead is an environment as those read it who get it as a list of "name=value": a
// name ends at its first "=". One that a job wrote with an "=" in it would else be
// another name to this driver than to the NVIDIA runtime.
func asRead(env map[string]string) map[string]string {
	read := make(map[string]string, len(env))
	for _, written := range slices.Sorted(maps.Keys(env)) {
		name, value, _ := strings.Cut(written+"="+env[written], "=")
		if _, twice := read[name]; !twice { // the one without comes first
			read[name] = value
		}
	}
	return read
}

func parseEnv(list []string) map[string]string {
	env := make(map[string]string, len(list))
	for _, entry := range list {
		key, value, _ := strings.Cut(entry, "=")
		env[key] = value
	}
	return env
}
