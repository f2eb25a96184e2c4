// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"slices"
)

// sandbox is the key under which Nomad keeps the pause container of a group.
const sandbox = "docker_sandbox_container_id"

// rowsOfNetworks attack the container that holds the network of a group. Its rights do not
// come from a job.
func rowsOfNetworks() []attack {
	const looks = "the pause container: image, GPUs, capabilities, limits"
	return []attack{
		{
			name: "pause", tries: "to have more by the pause container of its group than by its task", looks: looks,
			job: job{group: true, script: `true`}, look: pauseHasNothing,
		},
		{
			name: "pause-image-greedy", tries: "to see every GPU by the pause container: its image asks for all", looks: looks,
			job: job{script: `true`}, act: greedyPause, look: pauseHasNothing,
		},
		{
			name: "pause-image-replaced", tries: "to run in the pause container, by an archive with its image's tag that is loaded first", looks: looks,
			job: job{config: "image = \"{image}\"\nload = \"img.tar\"\nentrypoint = [\"/bin/sh\"]", script: `true`},
			before: download(func(s *scene, m []map[string]any) (_, after []entry) {
				return nil, []entry{plain("manifest.json", tagged(m, intruderImage, s.stage.pauseImage))}
			}), act: replacedPause, look: pauseHasNothing,
		},
		{
			name: "pause-name-taken", tries: "to take the pause container's name by its task's: gpu-docker_sandbox", looks: "whether the pause container lives",
			job: job{task: "gpu-docker_sandbox", group: true, script: `true`}, look: pauseLives,
		},
		{
			name: "pause-network-in-group", tries: "to join another's network with a group's own", looks: "the container's namespaces",
			job: job{group: true, config: `network_mode = "container:{victim}"`, script: `true`}, look: ownNamespace("net"), slow: true,
		},
	}
}

func pauseLives(s *scene, in *intruder) error {
	pause, err := s.stage.inspect(in.network.Labels[sandbox])
	if err != nil || !pause.State.Running {
		return fmt.Errorf("the pause container is gone (%v)", err)
	}
	return nil
}

func pauseHasNothing(s *scene, in *intruder) error {
	pause, err := s.stage.inspect(in.network.Labels[sandbox])
	if err != nil {
		return fmt.Errorf("the pause container is gone: %w", err)
	}
	gpus, err := s.stage.reached(pause.ID)
	if err != nil {
		return err
	}
	caps, err := status(pause.State.Pid, "CapBnd")
	if err != nil {
		return err
	}
	switch {
	case len(gpus) > 0:
		return fmt.Errorf("the pause container reaches the GPUs %v", gpus)
	case !slices.Contains(pause.Config.Env, "NVIDIA_VISIBLE_DEVICES=void"):
		return fmt.Errorf("the pause container does not say that it has no GPU, so an engine of other runtimes decides")
	case caps != "0000000000000000":
		return fmt.Errorf("the pause container has the capabilities %s", caps)
	case pause.HostConfig.Memory == 0 || pause.HostConfig.PidsLimit == nil || *pause.HostConfig.PidsLimit <= 0:
		return fmt.Errorf("the pause container has no limits: memory %d, processes %v", pause.HostConfig.Memory, pause.HostConfig.PidsLimit)
	}
	return nil
}

// greedyPause makes the pause image request all GPUs, as a replaced image could,
// while the group's network is made.
func greedyPause(s *scene, in *intruder) error {
	defer s.stage.restoreImages()
	command := "sleep 2147483647"
	err := s.stage.commit(s.stage.pauseImage, "ENV NVIDIA_VISIBLE_DEVICES=all", fmt.Sprintf(`ENTRYPOINT ["/bin/sh", "-c", %q]`, command))
	if err != nil {
		return err
	}
	return in.makeNetwork()
}

// replacedPause loads the archive, and then makes a network.
func replacedPause(s *scene, in *intruder) error {
	if err := in.start(in.job.config, in.job.script); err != nil {
		return err
	}
	if err := in.makeNetwork(); err != nil {
		return err
	}
	pause, err := s.stage.inspect(in.network.Labels[sandbox])
	if err == nil && pause.Image != s.stage.imageIDs[s.stage.pauseImage] {
		err = fmt.Errorf("the pause container runs the attacker's image")
	}
	return err
}
