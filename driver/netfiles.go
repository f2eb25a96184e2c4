package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/nomad/drivers/shared/resolvconf"
	"github.com/hashicorp/nomad/plugins/drivers"
)

// networkFiles writes the hosts and resolv.conf files of a task in a group's network,
// where Docker writes none. A task that chose another network gets Docker's.
func (s *start) networkFiles() error {
	if s.task.DNS != nil {
		dns, err := resolvConf(s.task)
		if err != nil {
			return fmt.Errorf("cannot write the task's resolv.conf: %w", err)
		}
		s.order.files = append(s.order.files, dns)
	}
	if s.task.NetworkIsolation == nil || s.order.job.NetworkMode != "" {
		return nil
	}
	hosts, err := s.services.hosts.mount(s.task.AllocDir, s.task.NetworkIsolation, s.order.job.ExtraHosts)
	if err != nil {
		return fmt.Errorf("cannot write the group's hosts file: %w", err)
	}
	if hosts != nil {
		s.order.files = append(s.order.files, hosts)
	}
	return nil
}

// resolvConf writes what the group's dns block says. It is made aside and then put in
// place: in the task's directory may be a link that the task made.
func resolvConf(task *drivers.TaskConfig) (*drivers.MountConfig, error) {
	aside, err := os.MkdirTemp("", "resolv.conf-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(aside) }()
	made, err := resolvconf.GenerateDNSMount(aside, task.DNS)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(made.HostPath)
	if err != nil {
		return nil, err
	}
	name, dir := filepath.Base(made.HostPath), task.TaskDir().Dir
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	made.HostPath = filepath.Join(dir, name)
	return made, replace(root, name, text)
}

// replace puts a new file in the place of whatever has the name.
func replace(root *os.Root, name string, text []byte) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// hostsFiles writes the hosts files that the tasks of a group share.
type hostsFiles struct {
	mu sync.Mutex // tasks of a group start at the same time
}

const hostsFile = "hosts" // in the allocation's directory

// mount brings the group's hosts file up to date and returns its mount, or nil if there
// is nothing to write into one. Tasks may have changed the file, and those that run have
// it mounted: lines of theirs stay, and so does the file itself.
//
// Nomad tells the group's address only when it has just furnished the network. If it did
// so before a restart of its agent, the file knows it; and if it had to do so once more,
// the address in the file is an old one.
func (f *hostsFiles) mount(allocDir string, spec *drivers.NetworkIsolationSpec, extra []string) (*drivers.MountConfig, error) {
	if spec.Mode != drivers.NetIsolationModeGroup {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	root, err := os.OpenRoot(allocDir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	before, err := readRegular(root, hostsFile)
	if err != nil {
		return nil, err
	}
	after, err := hostsText(string(before), spec.HostsConfig, extra)
	if err != nil || after == "" {
		return nil, err
	}
	switch {
	case before == nil:
		err = replace(root, hostsFile, []byte(after))
	case after != string(before):
		err = root.WriteFile(hostsFile, []byte(after), 0o644)
	}
	return &drivers.MountConfig{
		TaskPath: "/etc/hosts", HostPath: filepath.Join(allocDir, hostsFile), PropagationMode: "private",
	}, err
}

// readRegular reads a file, or returns nil if there is none or something else.
func readRegular(root *os.Root, name string) ([]byte, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := root.ReadFile(name)
	return text, err
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
		entry := own.Address + " " + own.Hostname
		if at := slices.Index(lines, ownHostMark); at < 0 {
			lines = append(lines, ownHostMark, entry)
		} else {
			lines = slices.Replace(lines, at+1, min(at+2, len(lines)), entry)
		}
	}
	for _, text := range extra {
		name, address, _ := strings.Cut(text, ":")
		ip := net.ParseIP(strings.Trim(address, "[]"))
		if name == "" || ip == nil {
			return "", fmt.Errorf("config.extra_hosts: %q is not a name and an IP address; "+
				"in a group's network, host-gateway is not known", text)
		}
		if line := ip.String() + " " + name; !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n") + "\n", nil
}
