// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"reflect"

	"github.com/hashicorp/nomad/plugins/device"
	"github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/nvml"
)

// deviceGroups returns the inventory in Nomad's form: a group per GPU, an instance per unit.
func deviceGroups(i inventory) []*device.DeviceGroup {
	groups := make([]*device.DeviceGroup, 0, len(i.offered))
	for _, g := range i.offered {
		groups = append(groups, &device.DeviceGroup{
			Vendor:     allocator.DeviceVendor,
			Type:       allocator.DeviceType,
			Name:       g.UUID,
			Devices:    instances(g),
			Attributes: attributes(g, i),
		})
	}
	return groups
}

func instances(g gpu) []*device.Device {
	locality := &device.DeviceLocality{PciBusID: g.PCIBusID}
	units := make([]device.Device, g.units)
	all := make([]*device.Device, g.units)
	for unit := range all {
		units[unit] = device.Device{
			ID:         allocator.UnitID(g.id(), unit),
			Healthy:    g.health == "",
			HealthDesc: g.health,
			HwLocality: locality,
		}
		all[unit] = &units[unit]
	}
	if g.health != "" {
		return all
	}
	for _, w := range g.withheld {
		for _, unit := range w.units {
			all[unit].Healthy, all[unit].HealthDesc = false, w.reason
		}
	}
	return all
}

// sameOffer reports whether two inventories make the same groups, without making them: it is
// called with every reading.
func sameOffer(a, b inventory) bool {
	if len(a.offered) == 0 && len(b.offered) == 0 {
		return true
	}
	if a.driver != b.driver || !reflect.DeepEqual(a.cuda, b.cuda) || len(a.offered) != len(b.offered) {
		return false
	}
	for n, g := range a.offered {
		other := b.offered[n]
		if g.units != other.units || g.unitMiB != other.unitMiB || g.health != other.health ||
			!reflect.DeepEqual(g.withheld, other.withheld) || !reflect.DeepEqual(lasting(g.GPU), lasting(other.GPU)) {
			return false
		}
	}
	return true
}

// lasting returns a GPU without the values that change from reading to reading. A value kept
// by mistake costs messages; a value dropped by mistake would never be sent.
func lasting(g nvml.GPU) nvml.GPU {
	g.Memory = &nvml.Memory{TotalMiB: g.Memory.TotalMiB}
	g.Processes, g.BAR1UsedMiB, g.Rows, g.RetiredPagesPending = nil, nil, nil, nil
	g.PowerW, g.TemperatureC, g.CoresClockMHz, g.MemoryClockMHz = nil, nil, nil, nil
	g.UtilizationPct, g.MemoryBusyPct, g.EncoderPct, g.DecoderPct = nil, nil, nil, nil
	g.UncorrectedECC, g.ECCL1, g.ECCL2, g.ECCMemory = nil, nil, nil, nil
	g.Recovery, g.Fabric = nil, nil
	return g
}

// attributes returns what a job can constrain. Attributes of NVIDIA's device plugin have the
// same names here. Memory has a unit, since Nomad does not compare a value with a unit to one
// without. Whatever looks like a number is a number, since Nomad parses it as one in a job's
// constraint.
//
// Nomad caches verdicts by node class, which includes attributes but not health:
// healthy_units makes Nomad evaluate the node again when a GPU fails or recovers.
func attributes(g gpu, i inventory) map[string]*structs.Attribute {
	a := attributeSet{
		"uuid":          structs.NewStringAttribute(g.UUID),
		"model":         structs.NewStringAttribute(g.Name),
		"index":         structs.NewIntAttribute(int64(g.Index), ""),
		"memory":        structs.NewIntAttribute(int64(g.Memory.TotalMiB), structs.UnitMiB),
		"memory_unit":   structs.NewIntAttribute(int64(g.unitMiB), structs.UnitMiB),
		"units":         structs.NewIntAttribute(int64(g.units), ""),
		"healthy_units": structs.NewIntAttribute(int64(g.healthyUnits()), ""),
	}
	a.text("driver_version", i.driver)
	a.text("mig_profile", g.MIGProfile)
	a.text("mig_parent", g.Parent)
	a.version("cuda_version", i.cuda)
	a.version("compute_capability", g.ComputeCapability)
	a.number("power", g.PowerLimitW, structs.UnitW)
	a.number("bar1", g.BAR1MiB, structs.UnitMiB)
	a.number("cores_clock", g.MaxCoresClockMHz, structs.UnitMHz)
	a.number("memory_clock", g.MaxMemoryClockMHz, structs.UnitMHz)
	a.number("pci_bandwidth", g.PCIBandwidthMBps, structs.UnitMBPerS)
	a.state("display_state", g.DisplayMode)
	a.state("persistence_mode", g.PersistenceMode)
	if g.NUMANode != nil {
		a["numa_node"] = structs.NewIntAttribute(int64(*g.NUMANode), "")
	}
	return a
}

// attributeSet leaves out values that a GPU does not report.
type attributeSet map[string]*structs.Attribute

func (a attributeSet) text(name, value string) {
	if value != "" {
		a[name] = structs.NewStringAttribute(value)
	}
}

func (a attributeSet) number(name string, value *uint64, unit string) {
	if value != nil {
		a[name] = structs.NewIntAttribute(int64(*value), unit)
	}
}

// version writes 12.4 as a number. NVIDIA's minor versions have one digit.
func (a attributeSet) version(name string, v *nvml.Version) {
	if v != nil {
		a[name] = structs.NewFloatAttribute(float64(v.Major*10+v.Minor)/10, "")
	}
}

func (a attributeSet) state(name string, on *bool) {
	switch {
	case on == nil:
	case *on:
		a[name] = structs.NewStringAttribute("Enabled")
	default:
		a[name] = structs.NewStringAttribute("Disabled")
	}
}
