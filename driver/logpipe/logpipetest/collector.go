// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package logpipetest has what tests need in the place of Nomad's log collector.
package logpipetest

import (
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// Collector reads a pipe as Nomad's log collector does: until its last writer is
// gone, and never again after that. It can be ended and replaced.
type Collector struct {
	path string
	mu   sync.Mutex
	text []byte
	quit chan struct{}
	done sync.WaitGroup
}

// Collect starts a collector, which ends with the test.
func Collect(t *testing.T, path string) *Collector {
	t.Helper()
	c := &Collector{path: path, quit: make(chan struct{})}
	c.done.Go(func() {
		file, err := os.Open(path) // waits for a writer
		if err != nil {
			return
		}
		defer file.Close()
		go func() { // a read that waits ends with the file
			<-c.quit
			_ = file.SetReadDeadline(time.Now())
		}()
		_, _ = io.Copy(c, file)
		<-c.quit
	})
	t.Cleanup(c.End)
	return c
}

// Write takes what was read.
func (c *Collector) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, data...)
	return len(data), nil
}

// End has the collector stop reading, as when its process is killed.
func (c *Collector) End() {
	select {
	case <-c.quit:
		return
	default:
		close(c.quit)
	}
	if writer, err := os.OpenFile(c.path, os.O_RDWR|syscall.O_NONBLOCK, 0); err == nil {
		defer writer.Close() // a collector that still waits for a writer has one now
	}
	c.done.Wait()
}

// Got returns what was read so far.
func (c *Collector) Got() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.text)
}

// Mkfifo makes a pipe and returns its path.
func Mkfifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	must.NoError(t, syscall.Mkfifo(path, 0o600))
	return path
}
