// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"nomad-gpu-mem/internal/version"
)

// build describes the source that this program was built from.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`   // absent if built outside a repository
	Modified bool   `json:"modified,omitempty"` // the tree differed from the commit
	Go       string `json:"go"`
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return thisBuild().write(cmd.OutOrStdout(), asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func thisBuild() build {
	b := build{Version: version.Version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		}
	}
	return b
}

func (b build) write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(b)
	}
	text := fmt.Sprintf("nomad-gpu-mem %s (%s", b.Version, b.Go)
	if b.Commit != "" {
		text += ", commit " + b.Commit
	}
	if b.Modified {
		text += " with changes"
	}
	_, err := fmt.Fprintln(w, text+")")
	return err
}
