// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

func TestShorten(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("job-", 100)
	for what, c := range map[string]struct {
		name  string
		limit int
		want  string // up to the hash; without one, the name
	}{
		"short":               {"train", 12, "train"},
		"none":                {"", 12, ""},
		"as long as possible": {"123456789012", 12, "123456789012"},
		"too long":            {long, 20, "job-job-job~"},
		"cut between letters": {"ab" + strings.Repeat("é", 20), 12, "ab~"},
		"JSON escapes":        {strings.Repeat("\x01", 9), 20, "\x01~"},
		"quotes":              {strings.Repeat(`"`, 9), 12, `"~`},
		"HTML needs no more":  {strings.Repeat("<", 12), 12, strings.Repeat("<", 12)},
		"not UTF-8":           {"a\xff", 20, "a\uFFFD~"},
		"looks shortened":     {"job~AAAAAAAA", 128, "job~AAAAAAAA~"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := shorten(c.name, c.limit)
			if c.want == c.name {
				must.Eq(t, c.name, got)
			} else {
				must.Eq(t, c.want, got[:len(got)-hashLen])
				must.Eq(t, len(c.want)+hashLen, len(got))
			}
			must.True(t, utf8.ValidString(got))
			text, err := keepjson.Encode(got)
			must.NoError(t, err)
			must.LessEq(t, shortenedLen(c.name, c.limit), len(text)-len(`""`))
			must.True(t, isNamed(got, c.name))
			must.False(t, isNamed(got, c.name+"x"))
			must.Eq(t, got, shorten(c.name, c.limit))
			must.True(t, c.name == "" || got != shorten(c.name+"x", c.limit), must.Sprint("another name"))
		})
	}
	short := shorten(long, 40)
	must.False(t, isNamed(short, short), must.Sprint("a name cannot pass for another's short form"))
	must.False(t, isNamed(shorten(short, 40), long))
}

// The length of every character in JSON is what encoding/json makes of it.
func TestJSONLen(t *testing.T) {
	t.Parallel()
	for r := range rune(0x3000) {
		text, err := keepjson.Encode(string(r))
		must.NoError(t, err)
		must.Eq(t, len(text)-2, jsonLen(string(r)), must.Sprintf("%q %s", r, text))
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("a", 12)
	f.Add(strings.Repeat("é<\u2028\x00\xff~", 9), 30)
	f.Add("x~AAAAAAAA", 12)
	f.Fuzz(func(t *testing.T, name string, limit int) {
		limit = max(limit%longestName, shortestName)
		got := shorten(name, limit)
		text, err := keepjson.Encode(got)
		must.NoError(t, err)
		must.LessEq(t, shortenedLen(name, limit), len(text)-2)
		must.LessEq(t, limit, shortenedLen(name, limit))
		must.True(t, isNamed(got, name))
		var back string
		must.NoError(t, json.Unmarshal(text, &back))
		must.Eq(t, got, back)
	})
}
