package driver

import (
	"errors"
	"path/filepath"
)

var errLogs = errors.New("the allocation's logs cannot be written to by tasks: leave out rw, or have the operator set allow_writable_logs")

// guardLogs keeps a task from the allocation's logs, where Nomad's log collector writes:
// who can put a link there makes it write to any file of the host. Of a bind of source
// at target it lays them read-only over what the container would see of them; it
// reports that all of the source must be read-only if that is nothing but logs.
func (b *blueprint) guardLogs(source, target string) (readOnly bool) {
	logs := b.task.TaskDir().LogDir
	if b.settings.AllowWritableLogs || !below(leadsTo(b.task.AllocDir), leadsTo(source)) {
		return false // what lies elsewhere needs volumes.enabled, which opens all of the host
	}
	if below(leadsTo(logs), leadsTo(source)) {
		return true
	}
	if inside, err := filepath.Rel(leadsTo(source), leadsTo(logs)); err == nil && filepath.IsLocal(inside) {
		b.host.Binds = append(b.host.Binds, b.bind(logs, filepath.Join(target, inside), "ro"))
	}
	return false
}

// below reports whether a path is dir or lies in it.
func below(dir, path string) bool {
	inside, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(inside)
}

// leadsTo is the path without links, as far as it exists.
func leadsTo(path string) string {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		return to
	}
	if dir := filepath.Dir(path); dir != path {
		return filepath.Join(leadsTo(dir), filepath.Base(path))
	}
	return path
}
