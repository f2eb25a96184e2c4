// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/placement"
)

// wholes asks for so many GPUs of one node.
func wholes(count, cpu int) placement.Request {
	r := placement.Request{CPU: cpu}
	for range count {
		r.Asks = append(r.Asks, placement.Ask{Whole: true, Apart: "task"})
	}
	return r
}

// large is a demand in which one task in so many wants a whole node of 4 GPUs, and
// all others half a GPU and little CPU.
func large(oneIn float64) []placement.Class {
	return []placement.Class{
		{Request: share(12), Weight: oneIn - 1},
		{Request: wholes(4, 30_000), Weight: 1},
	}
}

// A node on which a large task fits stays free while one is expected and room is
// rare, even if a place elsewhere strands GPUs beside too little CPU.
func TestRoomForLargeTasksIsKept(t *testing.T) {
	t.Parallel()
	empty, used := newNode("empty", 40_000, 24, 24, 24, 24), newNode("used", 9000, 24, 24, 24, 0)
	chosen := func(policy string, spare int) string {
		nodes := []placement.Node{empty, used}
		for i := range spare {
			n := empty
			n.ID = fmt.Sprint("spare-", i)
			nodes = append(nodes, n)
		}
		p := newPlacer(t, policy, nodes...)
		p.SetDemand(large(8))
		d, err := p.Choose(placement.Request{CPU: 8000, Asks: []placement.Ask{{Whole: true}}})
		must.NoError(t, err)
		return d.Node
	}
	must.Eq(t, "used", chosen("least-waste", 0))
	must.NotEq(t, "used", chosen("most-use", 0))
	must.NotEq(t, "used", chosen("least-waste", 60), must.Sprint("there are more nodes than large tasks"))
}

// What a place costs in room depends on all nodes, and is not kept with the other
// scores: a Placer that has made many decisions decides like a fresh one.
func TestOldPlacersDecideLikeFreshOnes(t *testing.T) {
	t.Parallel()
	newCluster := func(ids func(i int) placement.Node) *placement.Placer {
		var nodes []placement.Node
		for i := range 12 {
			nodes = append(nodes, ids(i))
		}
		p := newPlacer(t, placement.DefaultPolicy, nodes...)
		p.SetDemand(large(6))
		return p
	}
	id := func(i int) string { return fmt.Sprint("node-", i) }
	old := newCluster(func(i int) placement.Node { return newNode(id(i), 40_000, 24, 24, 24, 24) })
	kinds := []placement.Request{share(12), share(8), wholes(1, 4000), wholes(2, 9000), wholes(4, 30_000)}
	random := rand.New(rand.NewPCG(3, 3))
	var placed []placement.Decision
	for range 300 {
		r := kinds[random.IntN(len(kinds))]
		fresh := newCluster(func(i int) placement.Node {
			n, _ := old.Node(id(i))
			return n
		})
		d, err := old.Choose(r)
		want, wantErr := fresh.Choose(r)
		must.Eq(t, wantErr, err)
		must.Eq(t, want, d)
		if err == nil {
			must.NoError(t, old.Place(d))
			placed = append(placed, d)
		}
		if err != nil || random.IntN(3) == 0 {
			gone := random.IntN(len(placed))
			must.NoError(t, old.Remove(placed[gone]))
			placed = append(placed[:gone], placed[gone+1:]...)
		}
	}
}

// The prices cope with large tasks that fit no node, with more kinds of tasks than are distinguished, and with a cluster
// that loses its nodes.
func TestOddLargeTasks(t *testing.T) {
	t.Parallel()
	p := newPlacer(t, placement.DefaultPolicy, newNode("n", 90_000, 24, 24, 24, 24))
	classes := demand()
	for i := range 20 {
		classes = append(classes, placement.Class{Request: wholes(3+i%5, 1000*(1+2*i*i)), Weight: 1 + float64(i)})
	}
	p.SetDemand(classes)
	_, err := p.Choose(wholes(4, 80_000))
	must.NoError(t, err)
	p.SetNode(placement.Node{ID: "n", Out: "the node is gone"})
	_, err = p.Choose(wholes(4, 80_000))
	must.ErrorIs(t, err, placement.ErrNoRoom)
}
