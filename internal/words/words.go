// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package words puts names and numbers into messages for a terminal.
package words

import (
	"fmt"
	"strings"
	"unicode"
)

// Count says how many there are of what: "1 node", "2 nodes".
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Printable replaces what could move the cursor or change colours: names come from a store
// and from jobs that others write.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, s)
}
