// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"testing"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

func TestMain(m *testing.M) { fakenvml.Main(m) }
