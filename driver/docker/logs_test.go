// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
	"github.com/shoenig/test/must"
)

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 5, time.UTC) }

func outPiece(second int, data string) frame { return frame{stdcopy.Stdout, at(second), []byte(data)} }
func errPiece(second int, data string) frame { return frame{stdcopy.Stderr, at(second), []byte(data)} }

// record collects what a follower delivers, with the position after it.
type record struct {
	got  []string
	seen LogPosition
}

func (r *record) follower() *follower {
	return &follower{
		stdout: cursor{after: r.seen.Stdout, sink: func(at LogMark, data []byte) error {
			r.got, r.seen.Stdout = append(r.got, "out "+string(data)), at
			return nil
		}},
		stderr: cursor{after: r.seen.Stderr, sink: func(at LogMark, data []byte) error {
			r.got, r.seen.Stderr = append(r.got, "err "+string(data)), at
			return nil
		}},
	}
}

// TestFollowerResume cuts a log at every place, resumes from the marks alone, and wants each piece once. The log has a line in
// parts of one time, and two streams that are written in another order than stamped.
func TestFollowerResume(t *testing.T) {
	t.Parallel()
	log := []frame{
		outPiece(1, "a"), outPiece(2, "long-1"), outPiece(2, "long-2"), errPiece(4, "e1"), outPiece(3, "late"),
		errPiece(4, "e1 again"), outPiece(5, "b"), errPiece(5, "e2"),
	}
	var want []string
	whole := &record{}
	for f, i := whole.follower(), 0; i < len(log); i++ {
		must.NoError(t, f.deliver(log[i]))
		must.NoError(t, f.flush())
	}
	want = whole.got
	must.Len(t, len(log), want)

	for cut := range len(log) + 1 {
		r := &record{}
		first := r.follower()
		for _, piece := range log[:cut] {
			must.NoError(t, first.deliver(piece))
			must.NoError(t, first.flush())
		}
		saved, err := json.Marshal(r.seen)
		must.NoError(t, err)
		r.seen = LogPosition{}
		must.NoError(t, json.Unmarshal(saved, &r.seen))

		resumed := r.follower()
		for range 2 { // a second time, for the stream may break again
			resumed.reopen()
			for _, piece := range log {
				must.NoError(t, resumed.deliver(piece))
				must.NoError(t, resumed.flush())
			}
		}
		must.Eq(t, want, r.got, must.Sprintf("cut after %d pieces", cut))
	}
}

// deliverAll returns what is left of pieces that come in this order.
func deliverAll(t *testing.T, r *record, pieces ...frame) []string {
	t.Helper()
	f := r.follower()
	for _, piece := range pieces {
		must.NoError(t, f.deliver(piece))
		must.NoError(t, f.flush())
	}
	return r.got
}

func TestFollowerClockSetBack(t *testing.T) {
	t.Parallel()
	future := func(seconds int, data string) frame {
		return frame{stdcopy.Stdout, time.Now().Add(time.Hour).Truncate(time.Hour).Add(time.Duration(seconds) * time.Minute), []byte(data)}
	}
	old := future(55, "old")
	r := &record{seen: LogPosition{Stdout: LogMark{old.at, 1}}}
	got := deliverAll(t, r, old, future(56, "new"), future(53, "after the clock was set back"))
	must.Eq(t, []string{"out new", "out after the clock was set back"}, got)
}

// A daemon that rotates its files may read one of them twice.
func TestFollowerReadTwice(t *testing.T) {
	t.Parallel()
	got := deliverAll(t, &record{}, outPiece(1, "a"), outPiece(2, "b1"), outPiece(2, "b2"), outPiece(3, "c"),
		errPiece(3, "e"), outPiece(2, "b1"), outPiece(2, "b2"), outPiece(3, "c"), outPiece(4, "d"))
	must.Eq(t, []string{"out a", "out b1", "out b2", "out c", "err e", "out d"}, got)
}

// It may also begin to read again with the very line that was delivered last. The parts of a line share their time.
func TestFollowerReadTwiceFromTheLastLine(t *testing.T) {
	t.Parallel()
	got := deliverAll(t, &record{}, outPiece(1, "a\n"), outPiece(2, "b\n"), outPiece(2, "b\n"), outPiece(3, "c\n"))
	must.Eq(t, []string{"out a\n", "out b\n", "out c\n"}, got)

	got = deliverAll(t, &record{}, outPiece(1, "a1"), outPiece(1, "a2\n"), outPiece(1, "a1"), outPiece(1, "a2\n"), outPiece(2, "b\n"))
	must.Eq(t, []string{"out a1", "out a2\n", "out b\n"}, got)

	got = deliverAll(t, &record{}, outPiece(1, "x"), outPiece(1, "x"), outPiece(1, "x\n"), outPiece(1, "other\n"))
	must.Eq(t, []string{"out x", "out x", "out x\n", "out other\n"}, got) // parts that look alike, and another line of that time
}

func TestFollowerSince(t *testing.T) {
	t.Parallel()
	must.Eq(t, "", (&follower{}).since())
	f := &follower{stdout: cursor{after: LogMark{at(1), 1}}, stderr: cursor{after: LogMark{at(3), 1}}}
	want := at(3).Add(-slack)
	must.Eq(t, fmt.Sprintf("%d.000000005", want.Unix()), f.since())
}

func TestFollowerSinkFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	var got []string
	fail := true
	f := &follower{stdout: cursor{sink: func(_ LogMark, data []byte) error {
		if fail {
			return broken
		}
		got = append(got, string(data))
		return nil
	}}}
	must.NoError(t, f.deliver(outPiece(1, "a")))
	must.ErrorIs(t, f.flush(), broken)
	fail = false
	must.NoError(t, f.flush())
	must.Eq(t, []string{"a"}, got) // not taken for delivered
}

// TestFollowerCopy wants pieces that come together in one delivery, and none to wait for one that is not there yet.
func TestFollowerCopy(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	out := stdcopy.NewStdWriter(&stream, stdcopy.Stdout)
	for _, line := range []string{"one\n", "two\n", "three\n"} {
		fmt.Fprint(out, stamp(1)+line)
	}
	got := make(chan string, 3)
	f := &follower{stdout: cursor{sink: func(at LogMark, data []byte) error {
		got <- fmt.Sprintf("%d %s", at.Count, data)
		return nil
	}}}
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- f.copy(newMultiplexed(r)) }()

	half := stream.Len() - len("ee\n")
	_, err := w.Write(stream.Bytes()[:half])
	must.NoError(t, err)
	must.Eq(t, "2 one\ntwo\n", <-got)
	_, err = w.Write(stream.Bytes()[half:])
	must.NoError(t, err)
	must.Eq(t, "3 three\n", <-got)
	must.NoError(t, w.Close())
	must.NoError(t, <-ended)
}

// TestFollowerGathers wants whole lines, in deliveries that a pipe takes at once.
func TestFollowerGathers(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("x", 99) + "\n"
	lines, deliveries := 0, 0
	f := &follower{stdout: cursor{sink: func(last LogMark, data []byte) error {
		must.LessEq(t, atOnce, len(data))
		must.Eq(t, 0, len(data)%len(line))
		lines += len(data) / len(line)
		deliveries++
		must.Eq(t, LogMark{at(lines - 1), 1}, last)
		return nil
	}}}
	for i := range 100 {
		must.NoError(t, f.deliver(outPiece(i, line)))
	}
	must.NoError(t, f.flush())
	must.Eq(t, 100, lines)
	must.Eq(t, 3, deliveries)
}
