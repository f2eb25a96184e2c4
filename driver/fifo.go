package driver

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// fifo is the writing end of one of Nomad's log pipes. It is opened when there is
// something to write, and again whenever Nomad's collector, the reader, has been
// restarted.
//
// Opening a pipe waits for its reader, without a way to give up, if one is not
// there. So it is opened in the way that does not wait, and tried again.
type fifo struct {
	path  string
	retry time.Duration
	file  *os.File
}

// write delivers all of data or returns ctx's error. A reader that goes away in
// the middle gets data again from its beginning when it is back.
func (f *fifo) write(ctx context.Context, data []byte) error {
	for {
		err := f.tryWrite(ctx, data)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.close()
		if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ENXIO) && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if !pause(ctx, f.retry) {
			return ctx.Err()
		}
	}
}

func (f *fifo) tryWrite(ctx context.Context, data []byte) error {
	if f.file == nil {
		file, err := os.OpenFile(f.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		f.file = file
	}
	file := f.file
	stop := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Now()) })
	defer stop()
	_, err := file.Write(data)
	return err
}

func (f *fifo) close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}
