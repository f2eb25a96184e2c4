// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package netfile writes the hosts and resolv.conf files of a group's network, where Docker writes none. Tasks of the group can
// change the hosts file.
package netfile

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/driver/taskfile"
)

const (
	// HostsFile is the hosts file of a group, in the allocation's directory.
	HostsFile  = "hosts"
	mostOfFile = 1 << 20 // bytes that are read of a hosts file, which tasks can write to
)

// Replace writes a file of an allocation, in the place of what a task has put there.
func Replace(allocDir, path, text string) error {
	dir, err := taskfile.OpenDir(allocDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Replace(path, []byte(text), 0o644)
}

// HostsFiles writes the hosts files that the tasks of a group share.
type HostsFiles struct {
	mu sync.Mutex // tasks of a group start at the same time
}

// Hosts is what a task adds to its group's hosts file.
type Hosts struct {
	Own   *drivers.HostsConfig // the group's address; nil if Nomad does not tell it
	Extra []string             // "name:address"
	Group bool                 // the task shares a group's network
}

// HostsOf returns what a task adds: the group's own entry, and the extra hosts of its job.
func HostsOf(spec *drivers.NetworkIsolationSpec, extra []string) Hosts {
	return Hosts{Own: spec.HostsConfig, Extra: extra, Group: spec.Mode == drivers.NetIsolationModeGroup}
}

// Plan returns the mount of the group's hosts file, or nil if there is nothing to write
// into one.
func (f *HostsFiles) Plan(allocDir string, h Hosts) (*drivers.MountConfig, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := taskfile.OpenDir(allocDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	_, after, err := h.text(dir)
	if err != nil || after == "" {
		return nil, err
	}
	return &drivers.MountConfig{
		TaskPath: "/etc/hosts", HostPath: filepath.Join(allocDir, HostsFile), PropagationMode: "private",
	}, nil
}

// Write brings the group's hosts file up to date. Tasks may have changed the file, and
// those that run have it mounted: their lines stay, and so does the file itself.
//
// Nomad reports the group's address only when it has just set up the network. If it did
// so before a restart of its agent, the file has it; and if it had to do so once more,
// the address in the file is an old one.
func (f *HostsFiles) Write(allocDir string, h Hosts) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	dir, err := taskfile.OpenDir(allocDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	before, after, err := h.text(dir)
	if err != nil || after == before {
		return err
	}
	if before != "" {
		err = dir.Overwrite(HostsFile, []byte(after))
	}
	if before == "" || errors.Is(err, taskfile.ErrKind) {
		err = dir.Replace(HostsFile, []byte(after), 0o644)
	}
	return err
}

// text is the content of the group's hosts file as it is and as it is to be. What is not
// a file counts as none: a task made it.
func (h Hosts) text(dir *taskfile.Dir) (before, after string, err error) {
	if !h.Group {
		return "", "", nil
	}
	text, err := dir.ReadFile(HostsFile, mostOfFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, taskfile.ErrKind) {
		err = nil
	}
	if err != nil {
		return "", "", err
	}
	after, err = hostsText(string(text), h.Own, h.Extra)
	return string(text), after, err
}

const (
	commonHosts = `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
fe00::0 ip6-localnet
ff00::0 ip6-mcastprefix
ff02::1 ip6-allnodes
ff02::2 ip6-allrouters
ff02::3 ip6-allhosts
`
	ownHostMark = "# The next line is this allocation in its group's network."
)

// hostsText is the content of a hosts file: what it has, the group's own entry, and the
// extra ones of a task, "name:address". Empty: there is nothing to say.
func hostsText(before string, own *drivers.HostsConfig, extra []string) (string, error) {
	known := own != nil && own.Address != "" && own.Hostname != ""
	if before == "" && !known && len(extra) == 0 {
		return "", nil
	}
	if before == "" {
		before = commonHosts
	}
	lines := strings.Split(strings.TrimRight(before, "\n"), "\n")
	if known {
		entry, err := ownEntry(own)
		if err != nil {
			return "", err
		}
		if at := slices.Index(lines, ownHostMark); at < 0 {
			lines = append(lines, ownHostMark, entry)
		} else {
			lines = slices.Replace(lines, at+1, min(at+2, len(lines)), entry)
		}
	}
	for _, text := range extra {
		name, address, _ := strings.Cut(text, ":")
		ip := net.ParseIP(strings.Trim(address, "[]"))
		if !isWord(name) || ip == nil {
			return "", fmt.Errorf("config.extra_hosts: %q is not a name and an IP address; "+
				"in a group's network, host-gateway is not known", text)
		}
		if line := ip.String() + " " + name; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n", nil
}

func ownEntry(own *drivers.HostsConfig) (string, error) {
	if net.ParseIP(own.Address) == nil || !isWord(own.Hostname) {
		return "", fmt.Errorf("network.hostname: %q at %q is not a host name and an IP address", own.Hostname, own.Address)
	}
	return own.Address + " " + own.Hostname, nil
}
