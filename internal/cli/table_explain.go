// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/tableconfig"
)

// tableError says that the table as a whole cannot be read or changed: why,
// which names where it is, and what a person can do.
type tableError struct {
	doing string // "read" or "change"
	err   error
	hint  string
}

func (e *tableError) Error() string {
	msg := fmt.Sprintf("cannot %s the allocation table: %s", e.doing, e.err)
	if e.hint != "" {
		msg += "\n" + e.hint
	}
	return msg
}

func (e *tableError) Unwrap() error { return e.err }

// explain makes a tableError of an error from the table, for a command that
// reads it.
func (f *tableFlags) explain(err error) error {
	if errors.Is(err, allocator.ErrWriteDenied) { // a command that mostly reads
		return f.explainChange(err)
	}
	return &tableError{doing: "read", err: err, hint: f.hint(err, "read")}
}

// explainChange is explain for a command that changes the table: its token must
// be allowed to, even if reading is what it was denied.
func (f *tableFlags) explainChange(err error) error {
	return &tableError{doing: "change", err: err, hint: f.hint(err, "write")}
}

// hint says what a person can do; policy is what Consul must allow.
func (f *tableFlags) hint(err error, policy string) string {
	inFile := f.config.Store == tableconfig.StoreFile
	switch {
	case errors.Is(err, fs.ErrNotExist) && inFile:
		return "The plugins make the file when they first write. If theirs is elsewhere (path in their table block),\n" +
			"name it with --table-path; if they use Consul, leave out --table-store=file."
	case (errors.Is(err, allocator.ErrDenied) || errors.Is(err, fs.ErrPermission)) && inFile:
		return "The file belongs to the user that runs Nomad's agent, commonly root: run this command as that user."
	case errors.Is(err, allocator.ErrDenied):
		return fmt.Sprintf("Give a token with the rule key_prefix %q { policy = %q } by --table-token-file\n"+
			"or CONSUL_HTTP_TOKEN.", f.config.Prefix+"/", policy)
	case errors.Is(err, allocator.ErrUnavailable) && !inFile:
		return "Is Consul running there? Name another with --table-address or CONSUL_HTTP_ADDR;\n" +
			"for a table in a node's file, use --table-store=file."
	default:
		return ""
	}
}
