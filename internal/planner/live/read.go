// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"
	"slices"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"
	"golang.org/x/sync/errgroup"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/planner"
)

// readers is how many nodes are read concurrently.
const readers = 16

// withResources makes Nomad's lists include resources.
var withResources = map[string]string{"resources": "true"}

// read returns the current cluster, for planning this job.
func (s *Site) read(ctx context.Context, job *api.Job) (planner.Cluster, error) {
	var c planner.Cluster
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		c.Table, err = s.table.Snapshot(ctx)
		return err
	})
	group.Go(func() (err error) {
		c.Profiles, err = s.profiles(ctx, planner.ProfileNames(job))
		return err
	})
	group.Go(func() (err error) {
		c.Nodes, err = s.readNodes(ctx)
		return err
	})
	group.Go(func() error {
		q := &api.QueryOptions{Namespace: api.AllNamespacesNamespace, Params: withResources}
		_, err := s.nomad.Raw().Query("/v1/allocations", &c.Allocs, q.WithContext(ctx))
		return nomadFailed("list the allocations", err)
	})
	group.Go(func() (err error) {
		c.Registered, err = s.registered(ctx, job)
		return err
	})
	group.Go(func() (err error) {
		c.NodeLimit, err = s.nodeLimit(ctx)
		return err
	})
	group.Go(func() error {
		queue, err := s.queueOf(ctx, job)
		if queue != nil {
			c.Queue = queue.Type
		}
		return err
	})
	return c, group.Wait()
}

// registered returns the registered job, nil if there is none.
func (s *Site) registered(ctx context.Context, job *api.Job) (*api.Job, error) {
	q := &api.QueryOptions{Namespace: namespace(job)}
	old, _, err := s.nomad.Jobs().Info(*job.ID, q.WithContext(ctx))
	if notFound(err) {
		return nil, nil
	}
	return old, nomadFailed("read job "+*job.ID, err)
}

func namespace(job *api.Job) string {
	if job.Namespace == nil || *job.Namespace == "" {
		return api.DefaultNamespace
	}
	return *job.Namespace
}

// profiles reads the profiles that exist. The planner reports missing ones.
func (s *Site) profiles(ctx context.Context, names []string) (map[string]allocator.Profile, error) {
	found := map[string]allocator.Profile{}
	for _, name := range names {
		p, err := s.table.Profile(ctx, name)
		switch {
		case errors.Is(err, allocator.ErrNoProfile):
		case err != nil:
			return nil, err
		default:
			found[name] = p
		}
	}
	return found, nil
}

// readNodes returns the nodes with GPU memory, in full. Nodes that did not change since the
// last call are not read again: with hundreds of units each they are large.
func (s *Site) readNodes(ctx context.Context) ([]*structs.Node, error) {
	stubs, _, err := s.nomad.Nodes().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, nomadFailed("list the nodes", err)
	}
	nodes := make([]*structs.Node, len(stubs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, stub := range stubs {
		if nodes[i] = s.known(stub); nodes[i] != nil {
			continue
		}
		group.Go(func() (err error) {
			nodes[i], err = s.readNode(ctx, stub.ID)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	nodes = slices.DeleteFunc(nodes, func(n *structs.Node) bool { return n == nil })
	s.remember(nodes)
	return slices.DeleteFunc(nodes, func(n *structs.Node) bool { return !hasGPUs(n.NodeResources) }), nil
}

// readNode returns nil if the node no longer exists.
func (s *Site) readNode(ctx context.Context, id string) (*structs.Node, error) {
	var n structs.Node
	_, err := s.nomad.Raw().Query("/v1/node/"+id, &n, (&api.QueryOptions{}).WithContext(ctx))
	if notFound(err) {
		return nil, nil
	}
	return &n, nomadFailed("read node "+id, err)
}

func hasGPUs(r *structs.NodeResources) bool {
	return r != nil && slices.ContainsFunc(r.Devices, func(d *structs.NodeDeviceResource) bool {
		return d.Vendor+"/"+d.Type == allocator.Device
	})
}

// known returns a node that was read before, nil if it has changed since.
func (s *Site) known(stub *api.NodeListStub) *structs.Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[stub.ID]; n != nil && n.ModifyIndex == stub.ModifyIndex {
		return n
	}
	return nil
}

func (s *Site) remember(nodes []*structs.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.nodes)
	for _, n := range nodes {
		s.nodes[n.ID] = n
	}
}
