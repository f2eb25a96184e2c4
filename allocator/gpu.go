// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"fmt"
	"strings"
)

// GPUID identifies a GPU, or one MIG instance, by its NVML UUID. Old MIG UUIDs contain
// slashes. Indexes and names do not identify a GPU: both change while tasks run.
type GPUID string

// Vendor and type of the device that a job asks for. The device's name is the GPU's UUID.
const (
	DeviceVendor = "nvidia"
	DeviceType   = "gpu-mem"
	Device       = DeviceVendor + "/" + DeviceType
)

// unitSeparator separates GPU and unit in a unit's ID. UUIDs do not contain it.
const unitSeparator = "::"

// UnitID returns Nomad's instance ID of one unit of a GPU: "<UUID>::0007". Leading zeros
// make IDs sort by number.
func UnitID(gpu GPUID, unit int) string {
	return fmt.Sprintf("%s%s%04d", gpu, unitSeparator, unit)
}

// ParseUnitID is the inverse of UnitID.
func ParseUnitID(id string) (GPUID, int, error) {
	at := strings.LastIndex(id, unitSeparator)
	if at <= 0 {
		return "", 0, fmt.Errorf("invalid device ID %q, want \"<GPU UUID>%s<unit>\"", id, unitSeparator)
	}
	unit, err := parseUnit(id[at+len(unitSeparator):])
	if err != nil {
		return "", 0, fmt.Errorf("device ID %q: %w", id, err)
	}
	return GPUID(id[:at]), unit, nil
}
