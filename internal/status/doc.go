// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package status reports which task holds which GPU memory, from a snapshot of the
// allocation table: as text for a terminal, and as the JSON that docs/cli.md describes.
//
// Where to look:
//
//   - report.go: Report, the complete contents, as JSON prints them
//   - derive.go: the report of a snapshot; pure
//   - write.go: Write, text or JSON
//   - text.go, bar.go, legend.go, paint.go: the text
package status
