// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package staging

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
