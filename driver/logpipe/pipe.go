// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"nomad-gpu-mem/driver/taskfile"
)

// Pipe is the writing end of one of Nomad's log pipes.
//
// Opening a pipe waits for its reader, without a way to give up, if one is not
// there. So it is opened in the way that does not wait, and tried again.
type Pipe struct {
	Path string
	Dir  string   // the allocation's; what is in it is reached without following a link
	file *os.File // nil while not open

	taken int // bytes that the pipe has of data that was not delivered to its end
}

// Open opens the pipe if its reader is there. The reader may be another one than
// before: the pipe is kept open until then, and with it what is in it unread.
func (p *Pipe) Open() error {
	file, err := p.find()
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if p.file != nil {
		if before, err := p.file.Stat(); err != nil || !os.SameFile(before, info) {
			p.taken = 0
		}
		_ = p.file.Close()
	}
	p.file = file
	return nil
}

func (p *Pipe) find() (*os.File, error) {
	if p.Path == os.DevNull { // Nomad wants no logs of this stream
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	from := p.Dir
	inside, err := filepath.Rel(from, p.Path)
	if from == "" || err != nil || !filepath.IsLocal(inside) {
		from, inside = filepath.Dir(p.Path), filepath.Base(p.Path) // a place of Nomad's agent
	}
	dir, err := taskfile.OpenDir(from)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Pipe(inside)
}

// Write delivers all of data. If it fails, the same data, and what comes after it, is to
// be written again, in pieces of any size. The error matches syscall.EPIPE if the reader
// has gone away.
func (p *Pipe) Write(ctx context.Context, data []byte) error {
	file := p.file // what runs after ctx may outlast this call, and the file its place here
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Now()) })
	defer stop()
	skip := min(p.taken, len(data))
	n, err := file.Write(data[skip:])
	if err != nil {
		p.taken = max(p.taken, skip+n)
		return err
	}
	p.taken -= skip
	return nil
}

// File is the open pipe, nil while it is not open.
func (p *Pipe) File() *os.File { return p.file }

// Close closes the pipe; it may be opened again.
func (p *Pipe) Close() {
	if p.file != nil {
		_ = p.file.Close()
		p.file = nil
	}
}
