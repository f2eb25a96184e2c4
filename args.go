// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"nomad-gpu-mem/driver"
)

// driverOptions are the options in `args` of the agent's plugin block. All others are in its
// `config`.
type driverOptions struct {
	name string // the value of `driver` in jobs
}

// agentError is the prefix of lines on standard error that Nomad's agent logs as errors. It
// logs lines without it at level DEBUG only.
const agentError = "[ERROR]"

// driverOptionsOf reads the arguments of the task driver. Nomad accepts any name: that of
// another built-in driver would replace it.
func driverOptionsOf(args []string) (driverOptions, error) {
	var options driverOptions
	flags := pflag.NewFlagSet(driverName, pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&options.name, "driver-name", driver.Name, "")
	err := flags.Parse(args)
	names := []string{driver.Name, driver.BuiltinName}
	switch {
	case err != nil:
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case !slices.Contains(names, options.name):
		err = fmt.Errorf("--driver-name: invalid name %q, want one of %q", options.name, names)
	}
	if err != nil {
		return driverOptions{}, fmt.Errorf("args of plugin %q in the agent's configuration: %w", driverName, err)
	}
	return options, nil
}
