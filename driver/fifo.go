package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// fifo is the writing end of one of Nomad's log pipes.
//
// Opening a pipe waits for its reader, without a way to give up, if one is not
// there. So it is opened in the way that does not wait, and tried again.
type fifo struct {
	path string
	dir  string   // the allocation's; what is in it is reached without following a link out of it
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
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 && f.path != os.DevNull {
		_ = file.Close()
		return fmt.Errorf("%s is not a pipe of Nomad's log collector", f.path)
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
	const flags = os.O_WRONLY | syscall.O_NONBLOCK
	inside, err := filepath.Rel(f.dir, f.path)
	if f.dir == "" || err != nil || !filepath.IsLocal(inside) {
		return os.OpenFile(f.path, flags, 0)
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.OpenFile(inside, flags, 0)
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
