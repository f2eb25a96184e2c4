// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package placement decides on which node, and on which of its GPUs, a task should
// run.
//
// A Placer has a model of the cluster and answers requests from it. All policies
// use one algorithm: of all places that fit, take the one with the best score. A
// Policy is data: how much each measure of a place counts.
//
// # Use
//
//	p := placement.New(policy, seed)      // placement.PolicyNamed("least-waste")
//	p.SetNode(node)                       // each node, again when it changes
//	p.Learn(history.Classes())            // what future tasks will ask for; see History
//	d, err := p.Choose(request)           // the best place; ErrNoRoom
//	all := p.Shortlist(request, 32)       // the best nodes, best first
//	err = p.Place(d)                      // the place is taken
//	err = p.Remove(d)                     // and released
//
// # Where to look
//
//	node.go      Node and GPU: the cluster, by a snapshot
//	request.go   Request and Ask, and Decision: the place of a request
//	policy.go    the policies
//	placer.go    Placer: the picture of the cluster and its changes
//	choose.go    Choose and Shortlist: which node
//	assign.go    which GPUs of a node
//	measure.go   the score of a place
//	demand.go    what future tasks will ask for, as given; history.go learns it, prior.go
//	             has the expectation without a history
//
// Inside: class.go turns a request into numbers, once for each kind of
// request; bids.go prices free memory by the demand that fills it; rooms.go and losses.go price
// room for large tasks, by how much of it the whole cluster has; supply.go counts
// GPUs, seed.go breaks ties; cache.go caches every node's score for each kind of
// request, so that a decision scores only the nodes that changed since.
//
// # What must hold
//
// Memory is counted in MiB and sold in units, so every amount is a whole number
// of units of its GPU. Scores are integers: the same snapshot, requests and
// seed give the same decisions on every machine. A Placer is not safe for
// concurrent use.
//
// The package imports the standard library only.
package placement
