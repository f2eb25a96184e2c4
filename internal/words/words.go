// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package words formats names and numbers for terminal messages.
package words

import (
	"fmt"
	"strings"
	"unicode"
)

// Count formats a number of things: "1 node", "2 nodes".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Printable replaces characters that could move the cursor or change colours: names come from
// a store and from jobs, which are not trusted.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
