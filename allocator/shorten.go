// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// A name that is too long for a claim is shortened to its beginning, shortMark and a hash of
// the whole. Different names stay different, and each can be compared with its shortened
// form. A name that looks like a shortened one, or is not valid UTF-8, is always shortened, so
// that no name equals the shortened form of another.
const (
	shortMark = '~'
	hashBytes = 6
)

// hashLen is the length of a hash as text.
var hashLen = base64.RawURLEncoding.EncodedLen(hashBytes)

// shorten shortens the name to at most limit bytes of JSON.
func shorten(name string, limit int) string {
	valid := strings.ToValidUTF8(name, string(utf8.RuneError))
	if _, _, isShort := splitShort(name); !isShort && valid == name && jsonLen(name) <= limit {
		return name
	}
	room, end := limit-hashLen-1, 0
	for at, r := range valid {
		if room -= jsonRuneLen(r); room < 0 {
			break
		}
		end = at + utf8.RuneLen(r)
	}
	return valid[:end] + string(shortMark) + nameHash(name)
}

// shortenedLen returns an upper bound of the shortened name's size in JSON, without quotes.
func shortenedLen(name string, limit int) int {
	length := jsonLen(name)
	if _, _, isShort := splitShort(name); isShort || !utf8.ValidString(name) {
		length += 1 + hashLen
	}
	return min(length, limit)
}

// isNamed reports whether a recorded name, shortened or not, is the name.
func isNamed(recorded, name string) bool {
	prefix, hash, isShort := splitShort(recorded)
	if !isShort {
		return recorded == name
	}
	return hash == nameHash(name) && strings.HasPrefix(strings.ToValidUTF8(name, string(utf8.RuneError)), prefix)
}

func splitShort(name string) (prefix, hash string, isShort bool) {
	at := len(name) - hashLen - 1
	if at < 0 || name[at] != shortMark {
		return "", "", false
	}
	if _, err := base64.RawURLEncoding.DecodeString(name[at+1:]); err != nil {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

func nameHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:hashBytes])
}

// jsonLen is the length of a name in JSON, without its quotes. Of a long name it counts only
// so much that it is more than longestName.
func jsonLen(name string) (n int) {
	for _, r := range name {
		if n += jsonRuneLen(r); n > longestName {
			break
		}
	}
	return n
}

func jsonRuneLen(r rune) int {
	const short, long = 2, 6 // \n and \u000b
	switch {
	case strings.ContainsRune("\"\\\b\f\n\r\t", r):
		return short
	case r < ' ' || r == '\u2028' || r == '\u2029':
		return long
	default:
		return utf8.RuneLen(r)
	}
}
