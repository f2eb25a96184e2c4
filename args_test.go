// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"testing"

	"github.com/shoenig/test/must"
)

func TestDriverOptionsOf(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want string
		err  string
	}{
		{want: "gpu-docker"},
		{args: []string{"--driver-name=gpu-docker"}, want: "gpu-docker"},
		{args: []string{"--driver-name=docker"}, want: "docker"},
		{args: []string{"--driver-name", "docker"}, want: "docker"},
		{args: []string{"--driver-name=exec"}, err: `--driver-name: invalid name "exec", want one of ["gpu-docker" "docker"]`},
		{args: []string{"--driver-name="}, err: `--driver-name: invalid name ""`},
		{args: []string{"--drivername=docker"}, err: "unknown flag: --drivername"},
		{args: []string{"docker"}, err: `unexpected argument "docker"`},
		{args: []string{"--help"}, err: "nomad-driver-gpu-docker"},
	}
	for _, tc := range tests {
		options, err := driverOptionsOf(tc.args)
		if tc.err != "" {
			must.ErrorContains(t, err, tc.err)
			continue
		}
		must.NoError(t, err)
		must.Eq(t, tc.want, options.name)
	}
}
