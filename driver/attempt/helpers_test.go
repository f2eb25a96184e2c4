// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package attempt

import (
	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/allocator"
)

const (
	gpuA    allocator.GPUID = "GPU-aaaa"
	gpuB    allocator.GPUID = "GPU-bbbb"
	allocID                 = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
)

func quiet() hclog.Logger { return hclog.NewNullLogger() }
