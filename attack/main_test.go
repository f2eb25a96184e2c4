//go:build services

package attack

import (
	"os"
	"testing"

	"nomad-gpu-mem/driver"
)

// The driver starts this program once more, to hold log pipes open.
func TestMain(m *testing.M) {
	if os.Args[0] == driver.HolderName {
		if err := driver.Hold(os.Args[1:]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
