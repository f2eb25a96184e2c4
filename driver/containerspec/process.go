// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"github.com/docker/docker/api/types/container"
)

// process says what runs in the container.
func (b *builder) process() error {
	c := b.Job
	b.config.Image = b.Image.ID
	b.config.Entrypoint = c.Entrypoint
	if c.Command != "" {
		b.config.Cmd = append(b.config.Cmd, c.Command)
	}
	b.config.Cmd = append(b.config.Cmd, c.Args...)
	b.config.User = b.Task.User
	b.config.WorkingDir = c.WorkDir
	b.config.Tty = c.TTY
	b.config.OpenStdin = c.Interactive
	if c.Healthchecks.Disable {
		b.config.Healthcheck = &container.HealthConfig{Test: []string{"NONE"}}
	}
	if c.Init {
		b.host.Init = &c.Init
	}
	return nil
}

// logging chooses Docker's log driver: the task's, or the plugin's if the task says
// nothing at all. A config without a type goes to the daemon's default driver.
func (b *builder) logging() error {
	own := b.Job.Logging
	kind := own.Type
	if kind == "" {
		kind = own.Driver
	}
	if kind == "" && len(own.Config) == 0 {
		b.host.LogConfig = container.LogConfig{Type: b.Settings.Logging.Type, Config: b.Settings.Logging.Config}
		return nil
	}
	b.host.LogConfig = container.LogConfig{Type: kind, Config: own.Config}
	return nil
}
