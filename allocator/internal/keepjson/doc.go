// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package keepjson reads and writes structs as JSON and keeps the fields that this version
// does not know, so that a rewrite of a newer version's value loses nothing.
//
// fields.go reads and writes; names.go scans the names of fields without a decoder.
package keepjson
