// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package planner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// decodeTree reads JSON into maps, lists and values. Numbers keep their text: Nomad's
// nanoseconds and indexes do not fit a float64.
func decodeTree(text []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("decode JSON: %w", err)
	}
	return tree, nil
}

// member returns a member of an object and how the object spells its name: like Nomad it
// ignores case. Without such a member it returns the given name and nil. Two spellings of
// one name are an error, since Nomad might read either.
func member(node any, name string) (spelled string, value any, err error) {
	object, _ := node.(map[string]any)
	spelled = name
	found := false
	for key, v := range object {
		if !strings.EqualFold(key, name) {
			continue
		}
		if found {
			return "", nil, fmt.Errorf("field %s has two spellings, %q and %q; keep one", name, spelled, key)
		}
		spelled, value, found = key, v, true
	}
	return spelled, value, nil
}

// pointer returns the JSON Pointer (RFC 6901) of a path of names and positions.
func pointer(path ...string) string {
	var b strings.Builder
	for _, part := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return b.String()
}

// cursor is a position in a job's JSON: the value there, and the path in the job's spelling.
type cursor struct {
	node any
	path []string
}

// in returns the cursor of a member. A missing member has the value nil.
func (c cursor) in(name string) (cursor, error) {
	spelled, value, err := member(c.node, name)
	if err != nil {
		return cursor{}, fmt.Errorf("%s: %w", cursorPath(c.path), err)
	}
	return cursor{node: value, path: c.with(spelled)}, nil
}

// at returns the cursor of an element of a list.
func (c cursor) at(i int) (cursor, error) {
	list, _ := c.node.([]any)
	if i >= len(list) {
		return cursor{}, fmt.Errorf("%s has %d entries, want more than %d", cursorPath(c.path), len(list), i)
	}
	return cursor{node: list[i], path: c.with(strconv.Itoa(i))}, nil
}

// walk follows a path of member names (strings) and positions (ints).
func (c cursor) walk(steps ...any) (cursor, error) {
	var err error
	for _, step := range steps {
		switch step := step.(type) {
		case string:
			c, err = c.in(step)
		case int:
			c, err = c.at(step)
		}
		if err != nil {
			return cursor{}, err
		}
	}
	return c, nil
}

func (c cursor) with(part string) []string { return append(c.path[:len(c.path):len(c.path)], part) }

func cursorPath(path []string) string {
	if len(path) == 0 {
		return "job"
	}
	return pointer(path...)
}
