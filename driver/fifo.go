// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"nomad-gpu-mem/driver/taskfile"
)

// fifo is the writing end of one of Nomad's log pipes.
//
// Opening a pipe waits for its reader, without a way to give up, if one is not
// there. So it is opened in the way that does not wait, and tried again.
type fifo struct {
	path string
	dir  string   // the allocation's; what is in it is reached without following a link
	file *os.File // nil while not open

	taken int // bytes that the pipe has of data that was not delivered to its end
}

// open opens the pipe if its reader is there. The reader may be another one than
// before: the pipe is kept open until then, and with it what is in it unread.
func (f *fifo) open() error {
	file, err := f.find()
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	if f.file != nil {
		if before, err := f.file.Stat(); err != nil || !os.SameFile(before, info) {
			f.taken = 0
		}
		_ = f.file.Close()
	}
	f.file = file
	return nil
}

func (f *fifo) find() (*os.File, error) {
	if f.path == os.DevNull { // Nomad wants no logs of this stream
		return os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	}
	from := f.dir
	inside, err := filepath.Rel(from, f.path)
	if from == "" || err != nil || !filepath.IsLocal(inside) {
		from, inside = filepath.Dir(f.path), filepath.Base(f.path) // a place of Nomad's agent
	}
	dir, err := taskfile.OpenDir(from)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Pipe(inside)
}

// write delivers all of data. If it fails, the same data, and what comes after it, is to
// be written again, in pieces of any size. The error matches syscall.EPIPE if the reader
// has gone away.
func (f *fifo) write(ctx context.Context, data []byte) error {
	file := f.file // what runs after ctx may outlast this call, and the file its place here
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Now()) })
	defer stop()
	skip := min(f.taken, len(data))
	n, err := file.Write(data[skip:])
	if err != nil {
		f.taken = max(f.taken, skip+n)
		return err
	}
	f.taken -= skip
	return nil
}

func (f *fifo) close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}
