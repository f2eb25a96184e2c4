// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/client"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
)

// Container is a container as the daemon sees it.
type Container struct {
	ID          string
	Name        string // without the leading slash
	Image       string // image ID
	Status      string // created, running, paused, restarting, removing, exited, dead
	Running     bool   // true also while paused or between two restarts
	Pid         int    // of the first process, on the host; 0 if it does not run
	CreatedAt   time.Time
	StartedAt   time.Time // zero if it never started
	FinishedAt  time.Time // zero if it never ended
	ExitCode    int
	OOMKilled   bool
	Error       string // why it could not start
	Labels      map[string]string
	Mounts      map[string]string // source of each mounted path of the host, by where it is in the container
	NetworkName string            // its first network, by name, in which it has an IPv4 address
	IP, IPv6    string            // in that network; empty if none
	Networks    int               // how many networks it is in
	SandboxKey  string            // path of its network namespace
	TTY         bool
}

// Inspect looks up a container by ID or name. ErrNotFound, ErrUnavailable.
func (c *Client) Inspect(ctx context.Context, id string) (Container, error) {
	got, err := ask(c, func(api *client.Client) (container.InspectResponse, error) { return api.ContainerInspect(ctx, id) })
	if err != nil {
		return Container{}, wrap(err, "looking up container %s", short(id))
	}
	return containerOf(got), nil
}

func containerOf(got container.InspectResponse) Container {
	c := Container{
		ID:        got.ID,
		Name:      strings.TrimPrefix(got.Name, "/"),
		Image:     got.Image,
		CreatedAt: parseTime(got.Created),
	}
	if got.State != nil {
		c.Status = got.State.Status
		c.Running = got.State.Running
		c.Pid = got.State.Pid
		c.StartedAt = parseTime(got.State.StartedAt)
		c.FinishedAt = parseTime(got.State.FinishedAt)
		c.ExitCode = got.State.ExitCode
		c.OOMKilled = got.State.OOMKilled
		c.Error = got.State.Error
	}
	if got.Config != nil {
		c.Labels = got.Config.Labels
		c.TTY = got.Config.Tty
	}
	c.Mounts = sources(got.Mounts)
	if got.NetworkSettings != nil {
		c.SandboxKey = got.NetworkSettings.SandboxKey
		c.Networks = len(got.NetworkSettings.Networks)
		c.NetworkName, c.IP, c.IPv6 = addressOf(got.NetworkSettings.Networks)
	}
	return c
}

func sources(mounts []container.MountPoint) map[string]string {
	by := make(map[string]string, len(mounts))
	for _, m := range mounts {
		by[m.Destination] = m.Source
	}
	return by
}

// addressOf picks the network that a container is reached in.
func addressOf(networks map[string]*network.EndpointSettings) (name, ip, ipv6 string) {
	for _, name := range slices.Sorted(maps.Keys(networks)) {
		if at := networks[name]; at != nil && at.IPAddress != "" {
			return name, at.IPAddress, at.GlobalIPv6Address
		}
	}
	return "", "", ""
}

// parseTime reads the daemon's times. It writes year 1 for "never".
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t
}

// List returns the containers, stopped ones too, that carry all labels; a label with the value "" matches any value. Filled in
// are only ID, Name, Image, Status, Running, CreatedAt, Labels and
// Mounts.
func (c *Client) List(ctx context.Context, labels map[string]string) ([]Container, error) {
	match := filters.NewArgs()
	for key, value := range labels {
		if value != "" {
			key += "=" + value
		}
		match.Add("label", key)
	}
	got, err := ask(c, func(api *client.Client) ([]container.Summary, error) {
		return api.ContainerList(ctx, container.ListOptions{All: true, Filters: match})
	})
	if err != nil {
		return nil, wrap(err, "listing containers")
	}
	list := make([]Container, 0, len(got))
	for _, summary := range got {
		list = append(list, containerOfSummary(summary))
	}
	return list, nil
}

// running are the states in which a container lives.
var running = []container.ContainerState{container.StateRunning, container.StatePaused, container.StateRestarting}

func containerOfSummary(s container.Summary) Container {
	c := Container{
		ID:        s.ID,
		Image:     s.ImageID,
		Status:    s.State,
		Running:   slices.Contains(running, s.State),
		CreatedAt: time.Unix(s.Created, 0),
		Labels:    s.Labels,
		Mounts:    sources(s.Mounts),
	}
	if len(s.Names) > 0 {
		c.Name = strings.TrimPrefix(s.Names[0], "/")
	}
	return c
}
