// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package tellonce reports a condition that lasts once, however often it is found.
package tellonce

// Last is the last report on a condition. The zero value has none. A Last serves one
// goroutine at a time.
type Last struct{ report string }

// Note takes the present report, "" for none. It returns isNew if the report differs from
// the last one, so that it has to be told, and isOver if there was one and is none now.
func (l *Last) Note(report string) (isNew, isOver bool) {
	last := l.report
	l.report = report
	return report != "" && report != last, report == "" && last != ""
}

// NoteError is Note for the text of an error, nil for none.
func (l *Last) NoteError(err error) (isNew, isOver bool) {
	if err == nil {
		return l.Note("")
	}
	return l.Note(err.Error())
}
