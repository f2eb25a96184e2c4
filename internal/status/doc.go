// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package status reports who holds which part of which GPU's memory, from a snapshot of the
// allocation table: as text for a terminal, and as the JSON that docs/cli.md describes.
//
// Where to look:
//
//   - report.go: Report, all that there is to know, as JSON prints it
//   - derive.go: the report of a snapshot; pure
//   - write.go: Write, text or JSON
//   - text.go, bar.go, legend.go, paint.go: the text
package status
