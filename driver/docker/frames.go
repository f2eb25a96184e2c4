// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
)

// frame is one piece of a container's output: a line with its newline, or a part of a line that is long or has no newline.
type frame struct {
	stream stdcopy.StdType
	at     time.Time
	data   []byte
}

const (
	// stampFormat is how the daemon writes the time before each piece of output: always stampLen bytes, then a blank.
	stampFormat = "2006-01-02T15:04:05.000000000Z"
	stampLen    = len(stampFormat)

	// partLen is the length of the parts into which the daemon cuts long lines.
	partLen = 16 << 10

	// frameMost bounds a frame. Longer ones do not exist; a larger size means that the stream is not what we take it for.
	frameMost = 16 << 20
)

// frames takes a log stream with timestamps apart. next returns io.EOF only at the end of a whole piece; anything else means
// that the stream was cut off and the rest can still be read.
type frames interface {
	next() (frame, error)
	ahead() bool // next will not wait; false if that is not known
}

// multiplexed reads the stream of a container without a terminal: a header of 8 bytes (stream, 3 zeros, size), then one piece.
type multiplexed struct {
	r   *bufio.Reader
	buf []byte
}

const headerLen = 8

func newMultiplexed(r io.Reader) *multiplexed {
	return &multiplexed{r: bufio.NewReaderSize(r, 2*atOnce)}
}

func (m *multiplexed) ahead() bool {
	there := m.r.Buffered() - headerLen
	if there < 0 {
		return false
	}
	header, err := m.r.Peek(headerLen)
	return err == nil && there >= int(binary.BigEndian.Uint32(header[4:]))
}

func (m *multiplexed) next() (frame, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(m.r, header[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size > frameMost {
		return frame{}, fmt.Errorf("log stream is out of step: a frame of %d bytes", size)
	}
	if int(size) > cap(m.buf) {
		m.buf = make([]byte, size)
	}
	piece := m.buf[:size]
	if _, err := io.ReadFull(m.r, piece); err != nil {
		return frame{}, cutOff(err)
	}
	stream := stdcopy.StdType(header[0])
	if stream == stdcopy.Systemerr {
		return frame{}, fmt.Errorf("docker cannot read the logs on: %s", piece)
	}
	at, data, err := cutStamp(piece)
	return frame{stream, at, data}, err
}

// terminal reads the stream of a container with a terminal. It has no frames: the next piece begins after a newline, or after
// partLen bytes without one.
type terminal struct {
	r   *bufio.Reader
	buf []byte
}

func newTerminal(r io.Reader) *terminal {
	return &terminal{r: bufio.NewReaderSize(r, partLen)}
}

func (t *terminal) ahead() bool {
	there, _ := t.r.Peek(t.r.Buffered())
	return bytes.IndexByte(there, '\n') >= 0
}

func (t *terminal) next() (frame, error) {
	stamp, err := t.r.Peek(stampLen + 1)
	if len(stamp) == 0 {
		return frame{}, err
	}
	if err != nil {
		return frame{}, cutOff(err)
	}
	at, _, err := cutStamp(stamp)
	if err != nil {
		return frame{}, err
	}
	if _, err := t.r.Discard(stampLen + 1); err != nil {
		return frame{}, err
	}
	t.buf = t.buf[:0]
	for {
		b, err := t.r.ReadByte()
		if errors.Is(err, io.EOF) {
			return frame{stdcopy.Stdout, at, t.buf}, nil
		}
		if err != nil {
			return frame{}, err
		}
		t.buf = append(t.buf, b)
		if b == '\n' || (len(t.buf)%partLen == 0 && t.stampAhead()) {
			return frame{stdcopy.Stdout, at, t.buf}, nil
		}
	}
}

// stampAhead reports whether a new piece begins here.
func (t *terminal) stampAhead() bool {
	stamp, err := t.r.Peek(stampLen + 1)
	if err != nil {
		return len(stamp) == 0
	}
	_, _, err = cutStamp(stamp)
	return err == nil
}

// cutStamp splits a piece into its time and the output itself.
func cutStamp(piece []byte) (time.Time, []byte, error) {
	if len(piece) <= stampLen || piece[stampLen] != ' ' {
		return time.Time{}, nil, fmt.Errorf("log stream has no timestamp at %.80q", piece)
	}
	at, err := time.Parse(stampFormat, string(piece[:stampLen]))
	if err != nil {
		return time.Time{}, nil, fmt.Errorf("log stream has no timestamp at %.80q: %w", piece, err)
	}
	return at, piece[stampLen+1:], nil
}

// cutOff tells an end amid a piece from an end between two.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
