// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
	"github.com/shoenig/test/must"
)

func stamp(second int) string {
	return time.Date(2026, 1, 2, 3, 4, second, 5, time.UTC).Format(stampFormat) + " "
}

// readAll writes the pieces of a stream as "stream second text", and returns how it ended.
func readAll(f frames) (got []string, err error) {
	for {
		piece, err := f.next()
		if err != nil {
			return got, err
		}
		got = append(got, fmt.Sprintf("%d %d %s", piece.stream, piece.at.Second(), piece.data))
	}
}

func TestMultiplexed(t *testing.T) {
	t.Parallel()
	var stream bytes.Buffer
	out, errs := stdcopy.NewStdWriter(&stream, stdcopy.Stdout), stdcopy.NewStdWriter(&stream, stdcopy.Stderr)
	binary := "\x00\xff\x01\x00\r\n"
	fmt.Fprint(out, stamp(1)+"one\n")
	fmt.Fprint(errs, stamp(2)+"two, no newline")
	fmt.Fprint(out, stamp(3)+binary)
	fmt.Fprint(out, stamp(4))
	whole := stream.Bytes()

	got, err := readAll(newMultiplexed(bytes.NewReader(whole)))
	must.True(t, err == io.EOF)
	must.Eq(t, []string{"1 1 one\n", "2 2 two, no newline", "1 3 " + binary, "1 4 "}, got)

	// Wherever it is cut off, no piece is half delivered, and the end does not look like an end.
	ends := 0
	for n := range whole {
		got, err := readAll(newMultiplexed(bytes.NewReader(whole[:n])))
		if err == io.EOF {
			ends++
		} else {
			must.ErrorIs(t, err, io.ErrUnexpectedEOF)
		}
		must.SliceContainsSubset(t, []string{"1 1 one\n", "2 2 two, no newline", "1 3 " + binary}, got)
	}
	must.Eq(t, 4, ends) // before the first piece and after each but the last
}

func TestMultiplexedNonsense(t *testing.T) {
	t.Parallel()
	_, err := newMultiplexed(strings.NewReader("\x01\x00\x00\x00\xff\xff\xff\xff")).next()
	must.ErrorContains(t, err, "out of step")

	var stream bytes.Buffer
	fmt.Fprint(stdcopy.NewStdWriter(&stream, stdcopy.Stdout), "no time here\n")
	_, err = newMultiplexed(&stream).next()
	must.ErrorContains(t, err, "no timestamp")

	fmt.Fprint(stdcopy.NewStdWriter(&stream, stdcopy.Systemerr), "Error grabbing logs: bad file")
	_, err = newMultiplexed(&stream).next()
	must.ErrorContains(t, err, "Error grabbing logs: bad file")
}

func TestTerminal(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", partLen)
	for _, tc := range []struct {
		name, stream string
		want         []string
	}{
		{"nothing", "", nil},
		{"lines", stamp(1) + "one\r\n" + stamp(2) + "\r\n", []string{"1 1 one\r\n", "1 2 \r\n"}},
		{"no newline at the end", stamp(1) + "login: ", []string{"1 1 login: "}},
		{"long line", stamp(1) + long + stamp(1) + long + stamp(1) + "end\r\n" + stamp(2) + "next\r\n",
			[]string{"1 1 " + long, "1 1 " + long, "1 1 end\r\n", "1 2 next\r\n"}},
		{"a part's length without a part", stamp(1) + long + "y\n", []string{"1 1 " + long + "y\n"}},
		{"ends after a part", stamp(1) + long, []string{"1 1 " + long}},
		{"looks like a time", stamp(1) + "a " + stamp(9) + "b\n", []string{"1 1 a " + stamp(9) + "b\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := readAll(newTerminal(strings.NewReader(tc.stream)))
			must.True(t, err == io.EOF)
			must.Eq(t, tc.want, got)
		})
	}
}

func TestTerminalCutOff(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection reset")
	got, err := readAll(newTerminal(io.MultiReader(strings.NewReader(stamp(1)+"one\n"+stamp(2)+"tw"), failing{broken})))
	must.ErrorIs(t, err, broken)
	must.Eq(t, []string{"1 1 one\n"}, got)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
