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

// tableError reports that the table as a whole cannot be read or changed. err says why and
// where the table is, hint what the operator can do.
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

// explain wraps an error of the table in a tableError, for a command that reads the table.
func (f *tableFlags) explain(err error) error {
	if errors.Is(err, allocator.ErrWriteDenied) { // a command that mostly reads
		return f.explainChange(err)
	}
	return &tableError{doing: "read", err: err, hint: f.hint(err, "read")}
}

// explainChange is explain for a command that changes the table: its hint names the write
// permission, even if Consul denied a read.
func (f *tableFlags) explainChange(err error) error {
	return &tableError{doing: "change", err: err, hint: f.hint(err, "write")}
}

// hint returns what the operator can do; policy is what Consul must allow.
func (f *tableFlags) hint(err error, policy string) string {
	inFile := f.config.Store == tableconfig.StoreFile
	switch {
	case errors.Is(err, fs.ErrNotExist) && inFile:
		return "The plugins create the file when they first write. If theirs is elsewhere (path in their table block),\n" +
			"set --table-path; if they use Consul, leave out --table-store=file."
	case (errors.Is(err, allocator.ErrDenied) || errors.Is(err, fs.ErrPermission)) && inFile:
		return "The file belongs to the user that runs Nomad's agent, commonly root: run this command as that user."
	case errors.Is(err, allocator.ErrDenied):
		return fmt.Sprintf("Set a token with the rule key_prefix %q { policy = %q } by --table-token-file\n"+
			"or CONSUL_HTTP_TOKEN.", f.config.Prefix+"/", policy)
	case errors.Is(err, allocator.ErrUnavailable) && !inFile:
		return "Is Consul running there? Set another address with --table-address or CONSUL_HTTP_ADDR;\n" +
			"for a table in a node's file, use --table-store=file."
	default:
		return ""
	}
}
