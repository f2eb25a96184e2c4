// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

// Withdrawn returns why the device plugin of a GPU's node offers no unit of it, by the table;
// "" if it offers some. node is the state of the GPU's node. It ignores cordons and liveness.
func (g GPU) Withdrawn(node NodeState) string {
	switch {
	case g.State.Node == "" || g.State.Node != node.Name:
		return ""
	case node.Lacks(g.ID):
		return "NVML does not find it any more"
	case g.State.Health != "" && len(g.State.Unhealthy) >= g.State.Units:
		return g.State.Health
	}
	return ""
}
