package device

import (
	"testing"

	"nomad-gpu-mem/internal/nvml/fakenvml"
)

func TestMain(m *testing.M) { fakenvml.Main(m) }
