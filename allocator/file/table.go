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

// table is the content of the file.
type table struct {
	Format  int              `json:"format"`
	Version uint64           `json:"version"` // of the last change, never 0
	Entries map[string]entry `json:"entries"`
}

// entry is a value of the table: as it is if it is compact JSON, which all
// values are that the table writes, else as bytes in base64.
type entry struct {
	Version uint64          `json:"version"` // the table's, when the value was written
	Value   json.RawMessage `json:"value,omitempty"`
	Bytes   []byte          `json:"bytes,omitempty"`
}

// newTable returns the content that a file which is not there stands for.
func newTable() *table {
	return &table{Format: format, Version: 1, Entries: map[string]entry{}}
}

// decode reads the text of the file. An error matches allocator.ErrUnreadable.
func decode(text []byte) (*table, error) {
	t := &table{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("%w: %w", allocator.ErrUnreadable, err)
	}
	if t.Format != format {
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

// encode returns the text of the file. Sorted keys and indents are for people.
func (t *table) encode() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // it would change values
	encoder.SetIndent("", "  ")
	err := encoder.Encode(t)
	return text.Bytes(), err
}

// apply makes all the writes or none.
func (t *table) apply(writes []allocator.Write) error {
	for _, write := range writes {
		if have := t.Entries[write.Key].Version; have != write.Version {
			return fmt.Errorf("key %s has version %d, expected %d: %w", write.Key, have, write.Version, allocator.ErrConflict)
		}
	}
	t.Version++
	for _, write := range writes {
		if write.Value == nil {
			delete(t.Entries, write.Key)
		} else {
			t.Entries[write.Key] = newEntry(write.Value, t.Version)
		}
	}
	return nil
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

func newEntry(value []byte, version uint64) entry {
	if compact, err := compacted(value); err == nil && bytes.Equal(compact, value) {
		return entry{Version: version, Value: value}
	}
	return entry{Version: version, Bytes: value}
}

// value returns the bytes that newEntry was given; not nil, even if empty.
func (e entry) value() []byte {
	if compact, err := compacted(e.Value); err == nil {
		return compact
	}
	return append([]byte{}, e.Bytes...)
}

// compacted returns JSON without the spaces that make it readable.
func compacted(value []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Compact(&b, value)
	return b.Bytes(), err
}
