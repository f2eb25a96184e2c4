// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package keepjson

import (
	"bytes"
	"slices"
)

// eachName scans JSON text and calls visit for the beginning of each object, with no name,
// and for the name of each member, with the object's depth from 1. It is much faster than a
// decoder. It returns false if the caller must use a decoder instead, mostly because a name
// contains an escape. The text need not be valid.
func eachName(data []byte, visit func(depth int, name []byte)) bool {
	var open []byte // delimiters
	expectName := false
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{':
			open = append(open, '{')
			visit(len(open), nil)
			expectName = true
		case '[':
			open = append(open, '[')
			expectName = false
		case '}', ']':
			if len(open) == 0 {
				return false
			}
			open = open[:len(open)-1]
			expectName = false
		case ',':
			expectName = len(open) > 0 && open[len(open)-1] == '{'
		case '"':
			end := endOfString(data, i+1)
			if end < 0 {
				return false
			}
			if name := data[i+1 : end]; expectName {
				if bytes.IndexByte(name, '\\') >= 0 {
					return false
				}
				visit(len(open), name)
				expectName = false
			}
			i = end
		}
	}
	return len(open) == 0
}

// endOfString returns the position of the closing quote of the string that begins at i.
func endOfString(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// namesIn reports whether known is true for the names of all top-level members of an object.
func namesIn(object []byte, known func(name []byte) bool) bool {
	all := true
	understood := eachName(object, func(depth int, name []byte) {
		all = all && (depth > 1 || name == nil || known(name))
	})
	return understood && all
}

// smallObject is the most names that are compared one by one.
const smallObject = 24

// distinctNames reports whether no object has two members of one name. If false, the caller
// must use a decoder.
func distinctNames(data []byte) bool {
	var names [][][]byte // by depth
	distinct := true
	return eachName(data, func(depth int, name []byte) {
		for len(names) < depth {
			names = append(names, nil)
		}
		seen := &names[depth-1]
		switch {
		case name == nil:
			*seen = (*seen)[:0]
		case len(*seen) >= smallObject:
			distinct = false
		default:
			distinct = distinct && !slices.ContainsFunc(*seen, func(other []byte) bool { return bytes.Equal(other, name) })
			*seen = append(*seen, name)
		}
	}) && distinct
}
