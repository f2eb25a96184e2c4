// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"strings"
)

// rowsOfNames attack the names and labels by which the driver identifies its containers.
func rowsOfNames() (all []attack) {
	const looks = "containers and claims, once the task is destroyed"
	quote := func(labels ...string) string {
		text := "labels {\n"
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			text += fmt.Sprintf("  %q = %q\n", key, value)
		}
		return text + "}"
	}
	forged := []string{
		"nomad-gpu-mem.task_id={victim-attempt}", "nomad-gpu-mem.alloc_id={victim-alloc}", "nomad-gpu-mem.gpus={gpu1}", "nomad-gpu-mem.node_id=none", "nomad-gpu-mem.sandbox={victim-alloc}",
	}
	for i, label := range append(forged, "com.hashicorp.nomad.alloc_id={victim-alloc}", "nomad-gpu-mem.={victim-alloc}", "Nomad-gpu-mem.task_id={victim-attempt}") {
		all = append(all, attack{
			name: fmt.Sprintf("label-%d", i+1), tries: "to hide, or to pass for the other job's, by the label " + label, looks: looks,
			slow: i > 0,
			job:  job{config: quote(label), script: `true`, slice: true},
		})
	}
	var inImage []string
	for _, label := range forged {
		inImage = append(inImage, "LABEL "+label)
	}
	all = append(all, attack{
		name: "image-label", tries: "the same, by labels of its image", looks: looks,
		job: job{config: `image = "{image}"`, script: `true`, slice: true}, before: ownImage(inImage...),
	})
	for _, c := range []struct{ name, config string }{
		{"volume", `volumes = ["local:/alloc"]`},
		{"slash", `volumes = ["local:/alloc/"]`},
		{"spelled", `volumes = ["local:/x/../alloc"]`},
		{"parent", `volumes = ["local:/"]`},
		{"tmpfs", "mount {\n type = \"tmpfs\"\n target = \"/alloc\"\n}"},
		{"bind", "mount {\n type = \"bind\"\n source = \"local\"\n target = \"/alloc/.\"\n}"},
	} {
		name, config := c.name, c.config
		all = append(all, attack{
			name: "alloc-mounted-over-by-" + name, tries: "to hide by another mount at /alloc: " + strings.ReplaceAll(config, "\n", ""), looks: looks,
			slow: name != "tmpfs",
			job:  job{config: config, script: `true`, slice: true},
		})
	}
	all = append(all, attack{
		name: "alloc-volume-of-image", tries: "to hide by a VOLUME /alloc of its image", looks: looks,
		job: job{config: `image = "{image}"`, script: `true`, slice: true}, before: ownImage("VOLUME /alloc"),
	})
	for _, name := range []string{"bank", "bank_", "-app", "a b", "a.b", "app_" + strings.Repeat("x", 200)} {
		all = append(all, attack{
			name: fmt.Sprintf("task-named-%.12s", strings.ReplaceAll(name, " ", "-")), tries: fmt.Sprintf("to take another's container name, as the task %.20q", name), looks: looks,
			slow: true,
			job:  job{task: name, config: `container_exists_attempts = 3`, script: `true`, slice: true},
		})
	}
	return all
}
