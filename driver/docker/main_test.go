// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// impatient is a timing for tests: the same behaviour in milliseconds.
var impatient = timing{
	progressEvery: 10 * time.Millisecond,
	stopGrace:     20 * time.Second,
	removeGrace:   20 * time.Second,
	retryFirst:    time.Millisecond,
	awayTries:     6,
	errorTries:    4,
	startTries:    6,
	pollFirst:     time.Millisecond,
	pollMost:      50 * time.Millisecond,
	drainGrace:    time.Second,
	drainMost:     time.Minute,
}

// newClient makes a client for an endpoint and closes it with the test.
func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	must.NoError(t, err)
	c.timing = impatient
	t.Cleanup(func() { must.NoError(t, c.Close()) })
	return c
}
