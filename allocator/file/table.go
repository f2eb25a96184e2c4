// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"nomad-gpu-mem/allocator"
)

// format is the version of the file's layout.
const format = 1

// table is the content of the file. It is immutable: concurrent calls may read it.
type table struct {
	Format  int              `json:"format"`
	Version uint64           `json:"version"` // of the last change, never 0
	Entries map[string]entry `json:"entries"`
}

// entry is a value of the table: unchanged if it is compact JSON, as all values that the
// table writes, else as bytes in base64.
type entry struct {
	Version uint64          `json:"version"` // the table's, when the value was written
	Value   json.RawMessage `json:"value,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"`

	text []byte // its text in the file; most entries are written as they were read
}

// newTable returns the content of a missing file.
func newTable() *table {
	return &table{Format: format, Version: 1, Entries: map[string]entry{}}
}

// decode reads the text of the file. An error matches allocator.ErrUnreadable.
func decode(text []byte) (*table, error) {
	t := &table{}
	err := json.Unmarshal(text, t)
	if err != nil {
		t.Format = formatOf(text)
	}
	switch {
	case t.Format > format:
		return nil, fmt.Errorf("%w: %w: format %d, this program reads %d", allocator.ErrUnreadable, allocator.ErrNewer, t.Format, format)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", allocator.ErrUnreadable, err)
	case t.Format != format:
		return nil, fmt.Errorf("%w: format %d, this program reads %d", allocator.ErrUnreadable, t.Format, format)
	}
	for key, e := range t.Entries {
		if e.Version == 0 || e.Version > t.Version {
			return nil, fmt.Errorf("%w: key %s has version %d in a table of version %d",
				allocator.ErrUnreadable, key, e.Version, t.Version)
		}
	}
	if t.Version == 0 {
		return nil, fmt.Errorf("%w: table of version 0", allocator.ErrUnreadable)
	}
	if t.Entries == nil {
		t.Entries = map[string]entry{}
	}
	return t, nil
}

// formatOf returns the format of a text that cannot be decoded, 0 if it has none: a newer
// version may have changed everything else.
func formatOf(text []byte) int {
	var head struct {
		Format int `json:"format"`
	}
	if json.Unmarshal(text, &head) != nil {
		return 0
	}
	return head.Format
}

// encode returns the text of the file, with sorted keys and indents for readability.
func (t *table) encode() ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "{\n  \"format\": %d,\n  \"version\": %d,\n  \"entries\": {", t.Format, t.Version)
	separator := "\n"
	for _, key := range slices.Sorted(maps.Keys(t.Entries)) {
		name, err := indented(key)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s    %s: %s", separator, name, t.Entries[key].text)
		separator = ",\n"
	}
	if len(t.Entries) > 0 {
		text.WriteString("\n  ")
	}
	text.WriteString("}\n}\n")
	return text.Bytes(), nil
}

// indented returns the JSON of a part of an entry, with the file's indentation.
func indented(part any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would change values
	encoder.SetIndent("    ", "  ")
	err := encoder.Encode(part)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads an entry and keeps its text.
func (e *entry) UnmarshalJSON(text []byte) error {
	type plain entry
	if err := json.Unmarshal(text, (*plain)(e)); err != nil {
		return err
	}
	e.text = bytes.Clone(text)
	return nil
}

// after returns the content with all the writes made, or an error and no change.
func (t *table) after(writes []allocator.Write) (*table, error) {
	for _, write := range writes {
		if have := t.Entries[write.Key].Version; have != write.Version {
			return nil, fmt.Errorf("key %s has version %d, expected %d: %w", write.Key, have, write.Version, allocator.ErrConflict)
		}
	}
	next := &table{Format: format, Version: t.Version + 1, Entries: maps.Clone(t.Entries)}
	for _, write := range writes {
		if write.Value == nil {
			delete(next.Entries, write.Key)
			continue
		}
		entry, err := newEntry(write.Value, next.Version)
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", write.Key, err)
		}
		next.Entries[write.Key] = entry
	}
	return next, nil
}

func (t *table) get(key string) allocator.Entry {
	e, exists := t.Entries[key]
	if !exists {
		return allocator.Entry{Key: key}
	}
	return allocator.Entry{Key: key, Value: e.value(), Version: e.Version}
}

// all returns the entries by key.
func (t *table) all() []allocator.Entry {
	entries := make([]allocator.Entry, 0, len(t.Entries))
	for _, key := range slices.Sorted(maps.Keys(t.Entries)) {
		entries = append(entries, t.get(key))
	}
	return entries
}

func newEntry(value []byte, version uint64) (e entry, err error) {
	e = entry{Version: version, Bytes: value}
	if compact, err := compacted(value); err == nil && bytes.Equal(compact, value) {
		e = entry{Version: version, Value: compact}
	}
	e.text, err = indented(e)
	return e, err
}

// value returns the bytes that newEntry was given; not nil, even if empty.
func (e entry) value() []byte {
	if compact, err := compacted(e.Value); err == nil {
		return compact
	}
	return append([]byte{}, e.Bytes...)
}

// compacted returns JSON without white space.
func compacted(value []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, value)
	return b.Bytes(), err
}
