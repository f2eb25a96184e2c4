package cli

import (
	"errors"
	"fmt"
	"io/fs"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/internal/tableconfig"
)

// tableError says that the table as a whole cannot be read: why, which names
// where it is, and what a person can do.
type tableError struct {
	err  error
	hint string
}

func (e *tableError) Error() string {
	msg := "cannot read the allocation table: " + e.err.Error()
	if e.hint != "" {
		msg += "\n" + e.hint
	}
	return msg
}

func (e *tableError) Unwrap() error { return e.err }

// explain makes a tableError of an error from the table.
func (f *tableFlags) explain(err error) error {
	return &tableError{err: err, hint: f.hint(err)}
}

func (f *tableFlags) hint(err error) string {
	inFile := f.config.Store == tableconfig.StoreFile
	switch {
	case errors.Is(err, fs.ErrNotExist) && inFile:
		return "The plugins make the file when they first write. If theirs is elsewhere (path in their table block),\n" +
			"name it with --table-path; if they use Consul, leave out --table-store=file."
	case (errors.Is(err, allocator.ErrDenied) || errors.Is(err, fs.ErrPermission)) && inFile:
		return "The file belongs to the user that runs Nomad's agent, commonly root: run this command as that user."
	case errors.Is(err, allocator.ErrDenied):
		return fmt.Sprintf("Give a token with the rule key_prefix %q { policy = \"read\" } by --table-token-file\n"+
			"or CONSUL_HTTP_TOKEN.", f.config.Prefix+"/")
	case errors.Is(err, allocator.ErrUnavailable) && !inFile:
		return "Is Consul running there? Name another with --table-address or CONSUL_HTTP_ADDR;\n" +
			"for a table in a node's file, use --table-store=file."
	default:
		return ""
	}
}
