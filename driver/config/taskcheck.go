// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package config

import (
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-units"
	"github.com/hashicorp/nomad/drivers/shared/capabilities"

	"nomad-gpu-mem/driver/label"
	"nomad-gpu-mem/internal/quantity"
)

// Remarks are on what of a job's config has no effect, as far as the config itself tells.
func (c *TaskConfig) Remarks() (remarks []string) {
	if c.Auth.Email != "" {
		remarks = append(remarks, "config.auth.email has no effect: registries no longer ask for it")
	}
	if (c.Auth.Username == "") != (c.Auth.Password == "") {
		remarks = append(remarks, fmt.Sprintf("config.auth for user %q has only one of username and password", c.Auth.Username))
	}
	if c.MemoryHardLimit < 0 {
		remarks = append(remarks, fmt.Sprintf("config.memory_hard_limit = %d has no effect: it is not a size", c.MemoryHardLimit))
	}
	if !c.CPUHardLimit && c.CPUCFSPeriod != DefaultCPUPeriod && c.CPUCFSPeriod != 0 {
		remarks = append(remarks, fmt.Sprintf("config.cpu_cfs_period = %d has no effect without cpu_hard_limit", c.CPUCFSPeriod))
	}
	return remarks
}

// DefaultCPUPeriod is the kernel's period of CPU quotas, in microseconds.
const DefaultCPUPeriod = 100_000

// Validate checks all that can be known of a job's config without Docker, the node or
// the plugin's own configuration. What only those know is checked where they are asked.
func (c *TaskConfig) Validate() error {
	for _, check := range []func() error{c.checkProcess, c.checkResources, c.checkSecurity, c.checkNetwork} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (c *TaskConfig) checkProcess() error {
	switch {
	case c.Image == "":
		return fmt.Errorf("config.image is empty: name the image to run")
	case strings.TrimSpace(c.Command) != c.Command:
		return fmt.Errorf("config.command %q begins or ends with a blank: remove it", c.Command)
	case c.ContainerExistsAttempts < 0:
		return fmt.Errorf("config.container_exists_attempts %d is negative", c.ContainerExistsAttempts)
	case c.WorkDir != "" && !path.IsAbs(c.WorkDir):
		return fmt.Errorf("config.work_dir %q is not an absolute path", c.WorkDir)
	case c.Isolation != "":
		return fmt.Errorf("config.isolation %q works on Windows only: remove it", c.Isolation)
	}
	if c.ImagePullTimeout != "" {
		if _, err := quantity.Duration(c.ImagePullTimeout); err != nil {
			return fmt.Errorf("config.image_pull_timeout: %w", err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Labels)) {
		if strings.HasPrefix(key, label.Prefix) {
			return fmt.Errorf("config.labels has %q: labels that begin with %q are the driver's own", key, label.Prefix)
		}
	}
	return nil
}

func (c *TaskConfig) checkResources() error {
	switch {
	case c.CPUHardLimit && c.CPUCFSPeriod < 0 || c.CPUHardLimit && c.CPUCFSPeriod > 1_000_000:
		return fmt.Errorf("config.cpu_cfs_period %d is not within 0 and 1000000 microseconds", c.CPUCFSPeriod)
	case !isCPUSet(c.CpusetCpus):
		return fmt.Errorf(`config.cpuset_cpus %q is not a list of CPUs such as "0-3,7"`, c.CpusetCpus)
	case c.PidsLimit < -1:
		return fmt.Errorf("config.pids_limit %d is negative: use a count, or -1 for no limit", c.PidsLimit)
	case c.ShmSize < 0:
		return fmt.Errorf("config.shm_size %d is negative: it is in bytes", c.ShmSize)
	}
	if err := checkOOMScoreAdj("config.oom_score_adj", c.OOMScoreAdj); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Ulimit)) {
		if _, err := ParseUlimit(name, c.Ulimit[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sysctl)) {
		if !isNamespaced(name) {
			return fmt.Errorf("config.sysctl %q is not one that a container has for itself: those are net.*, fs.mqueue.*, "+
				"and of kernel.* the ones for System V IPC", name)
		}
	}
	return nil
}

// checkOOMScoreAdj holds a value against the kernel's range.
func checkOOMScoreAdj(key string, value int) error {
	if value < -1000 || value > 1000 {
		return fmt.Errorf("%s %d is not within -1000 and 1000", key, value)
	}
	return nil
}

// isCPUSet reads the kernel's list format, or nothing at all.
func isCPUSet(list string) bool {
	if list == "" {
		return true
	}
	for part := range strings.SplitSeq(list, ",") {
		firstText, lastText, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(firstText, 10, 16)
		if err != nil {
			return false
		}
		if !isRange {
			continue
		}
		if last, err := strconv.ParseUint(lastText, 10, 16); err != nil || last < first {
			return false
		}
	}
	return true
}

// isNamespaced reports whether the kernel keeps a sysctl per container.
func isNamespaced(name string) bool {
	name = strings.ReplaceAll(name, "/", ".")
	return strings.HasPrefix(name, "net.") || strings.HasPrefix(name, "fs.mqueue.") || slices.Contains([]string{
		"kernel.domainname", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
		"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	}, name)
}

func (c *TaskConfig) checkSecurity() error {
	if err := checkCapabilities("config.cap_add", c.CapAdd); err != nil {
		return err
	}
	if err := checkCapabilities("config.cap_drop", c.CapDrop); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "private", "host"}, c.Cgroupns) {
		return fmt.Errorf(`config.cgroupns %q is neither "private" nor "host"`, c.Cgroupns)
	}
	for _, group := range c.GroupAdd {
		if strings.TrimSpace(group) != group || group == "" {
			return fmt.Errorf("config.group_add has %q, which names no group", group)
		}
	}
	return nil
}

func checkCapabilities(key string, names []string) error {
	known := capabilities.LegacySupported().Union(capabilities.New([]string{"perfmon", "bpf", "checkpoint_restore"}))
	if unknown := known.Difference(capabilities.New(names)); !unknown.Empty() {
		return fmt.Errorf("%s has %s, which Linux does not know as a capability", key, unknown)
	}
	return nil
}

func (c *TaskConfig) checkNetwork() error {
	ip4, ip6 := net.ParseIP(c.IPv4Address), net.ParseIP(c.IPv6Address)
	switch {
	case c.IPv4Address != "" && ip4.To4() == nil:
		return fmt.Errorf("config.ipv4_address %q is not an IPv4 address", c.IPv4Address)
	case c.IPv6Address != "" && (ip6 == nil || ip6.To4() != nil):
		return fmt.Errorf("config.ipv6_address %q is not an IPv6 address", c.IPv6Address)
	}
	for key, value := range map[string]string{
		"ipv4_address": c.IPv4Address, "ipv6_address": c.IPv6Address, "network_aliases": strings.Join(c.NetworkAliases, ", "),
	} {
		if value != "" && !ownNetwork(c.NetworkMode) {
			return fmt.Errorf("config.%s %q works only in a network of your own, and network_mode is %q: "+
				"name one that `docker network create` made", key, value, c.NetworkMode)
		}
	}
	if c.MACAddress != "" {
		if _, err := net.ParseMAC(c.MACAddress); err != nil {
			return fmt.Errorf("config.mac_address %q is not a MAC address such as 02:42:ac:11:00:02", c.MACAddress)
		}
		if c.NetworkMode == "host" || c.NetworkMode == "none" || strings.HasPrefix(c.NetworkMode, "container:") {
			return fmt.Errorf("config.mac_address %q cannot be given with network_mode %q", c.MACAddress, c.NetworkMode)
		}
	}
	for _, entry := range c.ExtraHosts {
		name, address, _ := strings.Cut(entry, ":")
		if name == "" || address != "host-gateway" && net.ParseIP(strings.Trim(address, "[]")) == nil {
			return fmt.Errorf(`config.extra_hosts: %q is not a name and an IP address, such as "db:10.0.0.1"`, entry)
		}
	}
	return nil
}

// ownNetwork reports whether the mode names a network that people made.
func ownNetwork(mode string) bool {
	return !slices.Contains([]string{"", "default", "bridge", "host", "none"}, mode) && !strings.HasPrefix(mode, "container:")
}

// ParseUlimit reads "soft" or "soft:hard" of a limit that Docker can set.
func ParseUlimit(name, text string) (*container.Ulimit, error) {
	limit, err := units.ParseUlimit(name + "=" + text)
	if err != nil {
		return nil, fmt.Errorf(`config.ulimit %s = %q: %w; want "soft" or "soft:hard" in whole numbers`, name, text, err)
	}
	return limit, nil
}
