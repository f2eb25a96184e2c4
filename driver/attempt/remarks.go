// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/driver/label"
)

// DeviceSilence is how long the node's device plugin may say nothing until what it said
// last counts no more: several of its regular reports.
const DeviceSilence = 3 * time.Minute

// Remark is something that people should know of this node or of one of its GPUs.
type Remark struct {
	About string              // what it is about; two remarks of a round never have the same
	GPU   allocator.GPUID     // empty: the node
	Size  uint64              // if it grows, it is worth telling again
	Text  string              // what is seen, and what to do
	Task  *drivers.TaskConfig // whose author is notified; nil: the operator
	// TextFor is the text for tasks of a namespace; nil: there are none that should know.
	TextFor func(namespace string) string
}

// View is what is known of one GPU of this node, once the claims that were left
// behind are released.
type View struct {
	GPU      allocator.GPU     // its state is zero if this node's device plugin does not report it now
	Foreign  []allocator.Claim // that are other nodes'
	Strays   []label.Found     // containers that run on it without a task
	released bool              // a claim was left behind on it
}

// Remarks compares the claims on a GPU with what runs on it.
func (o View) Remarks() []Remark {
	all := o.use()
	add := func(about, format string, args ...any) {
		all = append(all, Remark{About: about + " on " + string(o.GPU.ID), GPU: o.GPU.ID, Text: fmt.Sprintf(format, args...)})
	}
	for _, c := range o.Foreign {
		add("claim of "+c.Attempt, "units %s (%d MiB) are claimed by %s of node %s (%s), which is not this one, so the claim stays; "+
			"`nomad-gpu-mem doctor` finds whether its task is gone; --fix repairs it",
			c.Units, o.mib(c), c.Owner, c.NodeName, c.Node)
	}
	for _, c := range o.unclaimed() {
		add("container "+c.ID, "container %s of allocation %s runs on it without a claim and without a task, "+
			"so its memory counts as free; gc.dangling_containers removes it, or `docker rm -f %s`", c.Name, c.Alloc, c.Name)
	}
	return all
}

// use compares the claims with the memory in use that the device plugin reports.
func (o View) use() (all []Remark) {
	if o.GPU.State.Node == "" {
		return nil
	}
	unmanaged, unattributed := o.GPU.Unexplained()
	if unmanaged > 0 {
		all = append(all, Remark{
			About: "unmanaged use of " + string(o.GPU.ID), GPU: o.GPU.ID, Size: o.units(unmanaged),
			Text: o.unmanaged(unmanaged, fullName),
			TextFor: func(namespace string) string {
				return o.unmanaged(unmanaged, func(c allocator.Claim) string { return c.NameFor(namespace) })
			},
		})
	}
	if unattributed > 0 {
		all = append(all, Remark{
			About: "unattributed use of " + string(o.GPU.ID), GPU: o.GPU.ID, Size: o.units(unattributed),
			Text: fmt.Sprintf("%d MiB more are in use than is claimed (%s), by processes that cannot be attributed; nvidia-smi shows them",
				unattributed, o.holders(fullName)),
		})
	}
	return all
}

// unmanaged is the remark on memory in use that no slice explains.
func (o View) unmanaged(mib uint64, name func(allocator.Claim) string) string {
	return fmt.Sprintf("%d MiB are in use by processes that hold no slice, or by tasks beyond theirs (%s), so a task may find less "+
		"than its slice; nvidia-smi shows the processes: end them, or take a slice for them with `nomad-gpu-mem claim`",
		mib, o.holders(name))
}

// fullName is a claim's owner as the operator may know it.
func fullName(claim allocator.Claim) string { return claim.Owner.String() }

// unclaimed are the strays that have no claim.
func (o View) unclaimed() []label.Found {
	claims := o.GPU.Claims()
	return slices.DeleteFunc(slices.Clone(o.Strays), func(f label.Found) bool {
		return !slices.Contains(f.GPUs, o.GPU.ID) ||
			slices.ContainsFunc(claims, func(c allocator.Claim) bool { return c.Attempt == f.Attempt })
	})
}

// holders names who holds how much.
func (o View) holders(name func(allocator.Claim) string) string {
	var all []string
	for _, claim := range o.GPU.Claims() {
		all = append(all, fmt.Sprintf("%s %s %d MiB", name(claim), claim.State, o.mib(claim)))
	}
	if len(all) == 0 {
		return "nothing is claimed"
	}
	return strings.Join(all, ", ")
}

func (o View) mib(claim allocator.Claim) uint64 {
	return uint64(len(claim.Units)) * o.GPU.Ledger.UnitMiB
}

// units is an amount in units, rounded up: what is less than one more is not worth
// telling again.
func (o View) units(mib uint64) uint64 {
	unit := max(o.GPU.State.UnitMiB, 1)
	return (mib + unit - 1) / unit
}

// SilenceRemark is the remark on a device plugin that does not report.
func SilenceRemark(host allocator.NodeName, node allocator.NodeState, now time.Time) []Remark {
	since := "has not reported"
	switch {
	case now.Sub(node.LastSeen) < DeviceSilence:
		return nil
	case !node.LastSeen.IsZero():
		since = "has not reported since " + node.LastSeen.Format(time.RFC3339)
	}
	return []Remark{{About: "device plugin", Text: fmt.Sprintf(
		"the device plugin of this node (%s) %s, so it is not known what else is in use on its GPUs; "+
			"see the agent's log, and that both plugins have the same table block", host, since)}}
}

// RemarkLog tells each remark once: when it has held for two rounds, since much comes and
// goes while tasks start and end; and again when it grows. It serves one goroutine.
type RemarkLog struct {
	seen map[string]bool   // in the last round
	told map[string]Remark // and not over
}

// Update returns what to report after a round: new remarks, and those that no longer
// hold.
func (b *RemarkLog) Update(round []Remark) (news, over []Remark) {
	seen, told := map[string]bool{}, map[string]Remark{}
	for _, r := range round {
		seen[r.About] = true
		last, known := b.told[r.About]
		switch {
		case known && r.Size <= last.Size:
			told[r.About] = last
		case b.seen[r.About]:
			told[r.About] = r
			news = append(news, r)
		}
	}
	for about, last := range b.told {
		if !seen[about] {
			over = append(over, last)
		}
	}
	b.seen, b.told = seen, told
	return news, over
}
