// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"encoding/json"
	"io"
)

// Options are how a report is written.
type Options struct {
	JSON  bool // instead of text
	Watch bool // as one of many: JSON in one line, text on an empty screen or followed by a line
	Width int  // of text, in columns; 0 is the terminal's, or 80
}

// Write writes a report as text or as JSON.
func Write(w io.Writer, r Report, how Options) error {
	if how.JSON {
		encoder := json.NewEncoder(w)
		if !how.Watch {
			encoder.SetIndent("", "  ")
		}
		return encoder.Encode(r)
	}
	p := paintFor(w, how.Width)
	picture := draw(r, p)
	switch {
	case how.Watch && p.isTerminal:
		picture = clearScreen + picture
	case how.Watch:
		picture += "\n"
	}
	_, err := io.WriteString(w, picture)
	return err
}
