// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// maxNodes is how many memory nodes a host can have: the limit of Linux.
const maxNodes = 1024

// numaNode returns the host's memory node nearest to the GPU: by the kernel for its PCI device,
// else by NVML for the host's memory; nil if neither reports it.
//
// nvmlDeviceGetNumaNodeId is different: where a GPU's own memory is a node of the host, it
// returns that node, which has no CPU.
func (d *device) numaNode(busID string) *int {
	if node := numaNodeOf(d.library.sysfs, busID); node != nil {
		return node
	}
	nodes := may(d, "nvmlDeviceGetMemoryAffinity", func() ([]uint, nvml.Return) {
		return d.GetMemoryAffinity(maxNodes, nvml.AFFINITY_SCOPE_NODE)
	})
	if nodes == nil {
		return nil
	}
	return onlyNode(*nodes)
}

// numaNodeOf reads the memory node of a PCI device from sysfs; nil if the kernel does not
// report it.
func numaNodeOf(sysfs, busID string) *int {
	address := sysfsAddress(busID)
	if address == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(sysfs, "bus/pci/devices", address, "numa_node"))
	if err != nil {
		return nil
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || node < 0 {
		return nil
	}
	return &node
}

// sysfsAddress returns a PCI address in the form of sysfs: NVML's domains have eight digits,
// the kernel's at least four, in lower case.
func sysfsAddress(busID string) string {
	domain, rest, found := strings.Cut(busID, ":")
	number, err := strconv.ParseUint(domain, 16, 32)
	if !found || err != nil || strings.ContainsAny(rest, "/\\") {
		return ""
	}
	return fmt.Sprintf("%04x:%s", number, strings.ToLower(rest))
}

// onlyNode returns the node of a mask with exactly one.
func onlyNode(mask []uint) *int {
	node := -1
	for i, word := range mask {
		switch bits.OnesCount(word) {
		case 0:
			continue
		case 1:
		default:
			return nil
		}
		if node >= 0 {
			return nil
		}
		node = i*bits.UintSize + bits.TrailingZeros(word)
	}
	if node < 0 {
		return nil
	}
	return &node
}
