// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/e2e/soak/model"
)

// inventory lists everything of a quiet cluster to which a leak would add. The error names
// what could not be read.
func (c *cluster) inventory(ctx context.Context) (model.Remains, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	found := model.Remains{}
	for _, list := range []func(context.Context, model.Remains) error{
		c.listClaims, c.listContainers, c.listAllocations, c.listSessions, c.listFiles, c.listProcesses, c.listMounts, c.listLinks,
	} {
		if err := list(ctx, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func add(to model.Remains, kind, format string, args ...any) {
	to[kind] = append(to[kind], fmt.Sprintf(format, args...))
}

func (c *cluster) listClaims(ctx context.Context, found model.Remains) error {
	snapshot, err := c.table.Snapshot(ctx)
	if err != nil {
		return err
	}
	claims, unreadable := claimsOf(snapshot)
	for _, claim := range claims {
		add(found, "claim", "units %v of GPU %s, %s by %s, container %.12s", claim.Units, claim.GPU, claim.State, claim.Attempt, claim.Container)
	}
	for _, gpu := range unreadable {
		add(found, "unreadable ledger", "GPU %s", gpu)
	}
	return nil
}

func (c *cluster) listContainers(ctx context.Context, found model.Remains) error {
	for _, m := range c.machines {
		containers, err := m.docker.ContainerList(ctx, container.ListOptions{All: true})
		if err != nil {
			return err
		}
		for _, one := range containers {
			add(found, "container", "%s: %v, %s, %s", m.name(), one.Names, one.State, one.Labels[labelAttempt])
		}
		networks, err := m.docker.NetworkList(ctx, network.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range networks {
			add(found, "Docker network", "%s: %s", m.name(), one.Name)
		}
		volumes, err := m.docker.VolumeList(ctx, volume.ListOptions{})
		if err != nil {
			return err
		}
		for _, one := range volumes.Volumes {
			add(found, "Docker volume", "%s: %s", m.name(), one.Name)
		}
	}
	return nil
}

func (c *cluster) listAllocations(_ context.Context, found model.Remains) error {
	allocs, _, err := c.nomad.Allocations().List(nil)
	if err != nil {
		return err
	}
	for _, alloc := range allocs {
		if alloc.ClientStatus == api.AllocClientStatusPending || alloc.ClientStatus == api.AllocClientStatusRunning {
			add(found, "allocation", "%s of %s is %s", alloc.ID, alloc.JobID, alloc.ClientStatus)
		}
	}
	return nil
}

func (c *cluster) listSessions(_ context.Context, found model.Remains) error {
	sessions, _, err := c.consul.Session().List(nil)
	for _, session := range sessions {
		add(found, "Consul session", "%s", session.Name)
	}
	return err
}

// ofTheNode are the files in state_dir that belong to no task, and may appear at any time.
var ofTheNode = []string{"node_id", "plugin.lock", "plugin.current", "plugin.current.lock", "plugin.living", "log-pipes.sock", "images.json", "infra_image.json"}

// listFiles lists the plugins' state, temporary files, and the directories of allocations.
// Nomad's sockets to killed plugins are not the plugins' leaks.
func (c *cluster) listFiles(_ context.Context, found model.Remains) error {
	for _, dir := range c.stateDirs() {
		if err := walk(dir, found, "file in state_dir"); err != nil {
			return err
		}
	}
	found["file in state_dir"] = slices.DeleteFunc(found["file in state_dir"], func(path string) bool {
		return slices.Contains(ofTheNode, filepath.Base(path))
	})
	if err := walk(c.temp(), found, "temporary file"); err != nil {
		return err
	}
	found["temporary file"] = slices.DeleteFunc(found["temporary file"], func(path string) bool {
		return strings.HasPrefix(filepath.Base(path), "plugin")
	})
	for number := range nodes {
		allocs, _ := filepath.Glob(filepath.Join(c.run(), "nomad"+suffix(number), "alloc", "*"))
		for _, dir := range allocs {
			add(found, allocDirectory, "%s", dir)
		}
	}
	return nil
}

// stateDirs returns the directories of the task driver.
func (c *cluster) stateDirs() (dirs []string) {
	for number := range nodes {
		dirs = append(dirs, filepath.Join(c.run(), "state"+suffix(number)))
	}
	return dirs
}

// suffix is what the scripts append to names of a node; node 0 has none.
func suffix(number int) string {
	if number == 0 {
		return ""
	}
	return strconv.Itoa(number)
}

func walk(dir string, found model.Remains, kind string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // removed meanwhile
		}
		if err == nil && !entry.IsDir() {
			add(found, kind, "%s", path)
		}
		return err
	})
}

// listProcesses lists processes with the mark of the cluster's daemons in their
// environment, or with the cluster's directory in their command line.
func (c *cluster) listProcesses(_ context.Context, found model.Remains) error {
	ours := map[int]bool{}
	for _, pid := range allPids() {
		args, _ := words(pid, "cmdline")
		env, _ := words(pid, "environ")
		if len(args) == 0 || pid == os.Getpid() {
			continue
		}
		marked := slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GPU_MEM_DAEMON_OF="+c.base+"/") })
		if marked || slices.ContainsFunc(args, func(a string) bool { return strings.Contains(a, c.base+"/") }) {
			ours[pid] = true
			add(found, "process", "%s", programOf(args))
		}
	}
	for _, pid := range allPids() {
		if parent, state := statusOf(pid); state == "Z" && ours[parent] {
			add(found, "process that was not waited for", "child of %d", parent)
		}
	}
	return nil
}

// programOf returns a program's name, and for Nomad's helpers their kind.
func programOf(args []string) string {
	name := filepath.Base(args[0])
	if name == "nomad" && len(args) > 1 {
		name += " " + args[1]
	}
	return name
}

func statusOf(pid int) (parent int, state string) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch key {
		case "State":
			state = strings.Fields(value)[0]
		case "PPid":
			parent, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return parent, state
}

func (c *cluster) listMounts(_ context.Context, found model.Remains) error {
	text, err := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], c.base) {
			add(found, "mount", "%s", fields[1])
		}
	}
	return err
}

// listLinks lists network links in our bridges, network namespaces, and the addresses and
// firewall rules of groups.
func (c *cluster) listLinks(ctx context.Context, found model.Remains) error {
	slot := c.machines[0].slot
	patterns := map[string]string{
		fmt.Sprintf("/sys/class/net/gpunomad%d/brif/*", slot):        "network link",
		fmt.Sprintf("/var/lib/cni/networks/nomad/10.214.%d.*", slot): "group's address",
		filepath.Join(c.base, "*", "docker-exec", "netns", "*"):      "network namespace",
	}
	bridges := []string{fmt.Sprintf("gpunomad%d", slot)}
	for _, m := range c.machines {
		bridges = append(bridges, bridgeOf(m.slot))
	}
	for _, bridge := range bridges { // /sys may show another network namespace
		links, _ := exec.CommandContext(ctx, "ip", "-o", "link", "show", "master", bridge).Output() // it may not be there yet
		for line := range strings.Lines(string(links)) {
			add(found, "network link", "%s: %s", bridge, strings.Fields(line)[1])
		}
	}
	for pattern, kind := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			add(found, kind, "%s", path)
		}
	}
	for _, table := range []string{"filter", "nat"} {
		rules, err := exec.CommandContext(ctx, "iptables", "-w", "-t", table, "-S").Output()
		if err != nil {
			return fmt.Errorf("iptables: %w", err)
		}
		for line := range strings.Lines(string(rules)) {
			// The rule for the bridge as a whole stays for as long as the bridge does.
			if strings.Contains(line, fmt.Sprintf("10.214.%d.", slot)) && !strings.Contains(line, ".0/24") {
				add(found, "firewall rule", "%s", strings.TrimSpace(line))
			}
		}
	}
	return nil
}
