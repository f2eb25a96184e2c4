package planner_test

import (
	"os"
	"testing"
)

// Nomad's scheduler logs every decision; NOMAD_TEST_LOG_LEVEL=DEBUG shows them.
func TestMain(m *testing.M) {
	if os.Getenv("NOMAD_TEST_LOG_LEVEL") == "" {
		os.Setenv("NOMAD_TEST_LOG_LEVEL", "OFF")
	}
	os.Exit(m.Run())
}
