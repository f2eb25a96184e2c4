// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"

	"github.com/hashicorp/nomad/plugins/base"
	"github.com/shoenig/test/must"
)

// A connection that breaks must not leave units held for ever, and nohup be heeded.
func TestEndings(t *testing.T) {
	t.Parallel()
	must.Eq(t, !signal.Ignored(syscall.SIGHUP), slices.Contains(endings(), os.Signal(syscall.SIGHUP)))
}

func TestRoleOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		byNomad bool
		want    role
		err     string
	}{
		{name: "nomad-gpu-mem", want: commandRole},
		{name: "gpus", want: commandRole}, // operators rename programs
		{name: "nomad-device-gpu-mem", byNomad: true, want: deviceRole},
		{name: "nomad-driver-gpu-docker", byNomad: true, want: driverRole},
		{name: "nomad-device-gpu-mem", err: "'nomad-gpu-mem --help'"},
		{name: "nomad-gpu-mem", byNomad: true, err: "nomad-driver-gpu-docker"},
	}
	for _, tc := range tests {
		got, err := roleOf(tc.name, tc.byNomad)
		if tc.err != "" {
			must.ErrorContains(t, err, tc.err)
			continue
		}
		must.NoError(t, err)
		must.Eq(t, tc.want, got)
	}
}

func TestStartedByNomad(t *testing.T) {
	t.Parallel()
	nomad := map[string]string{base.Handshake.MagicCookieKey: base.Handshake.MagicCookieValue}
	must.True(t, startedByNomad(func(name string) string { return nomad[name] }))
	must.False(t, startedByNomad(func(string) string { return "" }))
}
