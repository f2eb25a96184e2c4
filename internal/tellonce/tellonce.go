// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package tellonce makes a lasting condition be reported only once.
package tellonce

// Last is the last report on a condition. The zero value has none. It is not safe for
// concurrent use.
type Last struct{ report string }

// Note records the current report, "" for none. It returns isNew if the report must be made:
// it differs from the last one; and isOver if the condition has ended.
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
