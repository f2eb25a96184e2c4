// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// schemaVersion is the version of the JSON of nodes, GPUs, cordons and profiles that this program writes, and the
// highest it reads. Adding a field does not change it; a change that an older program would misread does.
const schemaVersion = 1

// schema is the member "schema" of a value: schemaVersion in all that is written. A value without it is of version 1.
// Reading a higher one returns an error that matches ErrNewer.
type schema struct{}

// MarshalJSON writes the version of this program.
func (schema) MarshalJSON() ([]byte, error) { return strconv.AppendInt(nil, schemaVersion, 10), nil }

// UnmarshalJSON rejects newer versions.
func (*schema) UnmarshalJSON(data []byte) error {
	version, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	return checkVersion("schema", version, schemaVersion)
}

// checkVersion returns an error for a version that this program does not read.
func checkVersion(member string, version, highest int) error {
	switch {
	case version > highest:
		return fmt.Errorf("%w: %s %d, this program reads up to %d", ErrNewer, member, version, highest)
	case version < 1:
		return fmt.Errorf("invalid %s %d, versions begin with 1", member, version)
	default:
		return nil
	}
}

// isNewer returns an error that matches ErrNewer if a value has a higher version in its member "schema", or a ledger in
// "version". A newer version may have given any other member a form that fails to decode first, so this is called after
// such a failure as well.
func isNewer(value []byte, member string) error {
	highest := schemaVersion
	if member == "version" {
		highest = ledgerVersion
	}
	var members map[string]json.RawMessage
	var version int
	if json.Unmarshal(value, &members) != nil || json.Unmarshal(members[member], &version) != nil {
		return nil
	}
	if err := checkVersion(member, version, highest); errors.Is(err, ErrNewer) {
		return err
	}
	return nil
}

// newerEntry returns an error that matches ErrNewer if the value of a key was written by a newer version, which must
// neither overwrite nor delete it.
func newerEntry(entry Entry) error {
	err := newRecord(entry).err
	if gpu, suffix, ok := parseGPUKey(entry.Key); ok && gpu != "" && suffix == cordonSuffix {
		err = isNewer(entry.Value, "schema") // any value of that key is a cordon
	}
	if errors.Is(err, ErrNewer) {
		return fmt.Errorf("key %s: %w", entry.Key, err)
	}
	return nil
}
