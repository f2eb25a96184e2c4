// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The slots for clusters of tests: 0 is that of `make demo`, and the slots after these are
// for engines without a cluster.
const (
	firstSlot = 1
	lastSlot  = 59
)

// claimSlot returns a cluster number that no other cluster of this machine has and that has
// free ports. It claims the slot for the cluster in the run directory by making the bridge
// of the cluster's engine, which `down` removes.
func claimSlot(run string) (int, error) {
	var refusal string
	for slot := firstSlot; slot <= lastSlot; slot++ {
		bridge := fmt.Sprintf("gpumem%d", slot)
		if out, err := exec.Command("ip", "link", "add", bridge, "type", "bridge").CombinedOutput(); err != nil {
			refusal = strings.TrimSpace(string(out))
			continue
		}
		err := exec.Command("ip", "link", "set", bridge, "alias", run).Run()
		if err == nil {
			err = portsFree(slot)
		}
		if err == nil {
			return slot, nil
		}
		refusal = err.Error()
		if out, err := exec.Command("ip", "link", "delete", bridge).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("deleting bridge %s: %w: %s", bridge, err, out)
		}
	}
	return 0, fmt.Errorf("no slot from %d to %d is free for a cluster; the last one: %s", firstSlot, lastSlot, refusal)
}

// portsFree returns an error if a port of a cluster in that slot is taken. The slot owns
// ten of Nomad's ports and four of Consul's, as scripts/env.sh counts them.
func portsFree(slot int) error {
	for first, count := range map[int]int{4646 + 10*slot: 10, 8500 + 10*slot: 4} {
		for port := first; port < first+count; port++ {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return err
			}
			if err := listener.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// A slot has one cluster: the scripts of another run directory neither take it nor remove
// its bridges.
func TestSlotBelongsToOneRunDirectory(t *testing.T) {
	t.Parallel()
	out := output(t, exec.Command(filepath.Join("..", "scripts", "alone.sh"), filepath.Join("testdata", "slot.sh"), t.TempDir()))
	must.StrContains(t, out, "after another's down: gpumem7 gpunomad7\n")
	must.StrContains(t, out, "error: slot 7 is in use by the cluster in ")
	must.StrContains(t, out, "after its own down:\n")
	must.StrContains(t, out, "free again\n")
	must.StrNotContains(t, out, "another's up succeeded")
}
