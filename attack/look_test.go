// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// never checks that a request to Docker did not contain a text of its API.
func never(words ...string) look {
	return func(s *scene, _ *intruder) error {
		asked := s.stage.relay.requests()
		for _, word := range words {
			if strings.Contains(asked, word) {
				return fmt.Errorf("Docker was asked for %s", word)
			}
		}
		return nil
	}
}

// noDevice checks that the kernel does not let the container open a device, and that the
// driver did not request it from Docker.
func noDevice(path string) look {
	return func(s *scene, in *intruder) error {
		path := s.expand(in, path)
		n, err := nodeAt(path)
		if err != nil || !in.runs() {
			return err
		}
		for _, device := range in.container.HostConfig.Devices {
			if given, err := nodeAt(device.PathOnHost); err == nil && given.kind == n.kind && given.major == n.major && given.minor == n.minor {
				return fmt.Errorf("the container was given %s (%s)", path, device.CgroupPermissions)
			}
		}
		open, err := allowed(in.container.State.Pid, n)
		if err == nil && open {
			err = fmt.Errorf("the kernel lets the container open %s", path)
		}
		return err
	}
}

// ownNamespace checks that the container shares a namespace with neither the host
// nor the other job.
func ownNamespace(kind string) look {
	return func(s *scene, in *intruder) error {
		if !in.runs() {
			return nil
		}
		own, err := namespace(in.container.State.Pid, kind)
		if err != nil {
			return err
		}
		for owner, pid := range map[string]int{"the host": os.Getpid(), "the other job": s.victim.container.State.Pid} {
			other, err := namespace(pid, kind)
			if err != nil {
				return err
			}
			if other == own {
				return fmt.Errorf("the container is in the %s namespace of %s", kind, owner)
			}
		}
		return nil
	}
}

func namespace(pid int, kind string) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
}

// notMounted checks that nothing of a directory of the host is mounted at target.
func notMounted(source, target string) look {
	return func(s *scene, in *intruder) error {
		if !in.runs() {
			return nil
		}
		source := s.expand(in, source)
		host, err := os.Stat(source)
		if err != nil {
			return err
		}
		inside, err := os.Stat(filepath.Join(fmt.Sprintf("/proc/%d/root", in.container.State.Pid), target))
		if err == nil && os.SameFile(host, inside) {
			return fmt.Errorf("%s of the host is in the container at %s", source, target)
		}
		return nil
	}
}

// status is a line of the kernel's status of a process.
func status(pid int, key string) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == key {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("process %d has no %s", pid, key)
}

// unprivileged checks that the container's processes can have no capabilities
// beyond Docker's usual ones.
func unprivileged(_ *scene, in *intruder) error {
	if !in.runs() {
		return nil
	}
	const usual = 0xa80425fb
	text, err := status(in.container.State.Pid, "CapBnd")
	if err != nil {
		return err
	}
	var set uint64
	if _, err := fmt.Sscanf(text, "%x", &set); err != nil {
		return err
	}
	if beyond := set &^ usual; beyond != 0 {
		return fmt.Errorf("the container may have the capabilities %#x", beyond)
	}
	return nil
}

// kept checks that a setting of the kernel is unchanged. It is first read when the row is
// made.
func kept(path string) look {
	before, _ := os.ReadFile(path)
	return func(*scene, *intruder) error {
		now, err := os.ReadFile(path)
		if err != nil || string(now) != string(before) {
			_ = os.WriteFile(path, before, 0o600)
			return fmt.Errorf("%s of the host is %q and was %q (%v)", path, now, before, err)
		}
		return nil
	}
}
