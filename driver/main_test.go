package driver

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary stands in for the program: it is a holder of log pipes when
// started as one.
func TestMain(m *testing.M) {
	if os.Args[0] == HolderName {
		if err := Hold(os.Args[1:]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
