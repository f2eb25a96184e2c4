package driver

import (
	"context"
	"os"
	"syscall"
	"time"
)

// fifo is the writing end of one of Nomad's log pipes.
//
// Opening a pipe waits for its reader, without a way to give up, if one is not
// there. So it is opened in the way that does not wait, and tried again.
type fifo struct {
	path string
	file *os.File // nil while not open
}

// open opens the pipe if its reader is there.
func (f *fifo) open() error {
	if f.file != nil {
		return nil
	}
	file, err := os.OpenFile(f.path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	f.file = file
	return nil
}

// write delivers all of data. The error matches syscall.EPIPE if the reader has
// gone away; data that was not delivered to its end is to be written again.
func (f *fifo) write(ctx context.Context, data []byte) error {
	stop := context.AfterFunc(ctx, func() { _ = f.file.SetWriteDeadline(time.Now()) })
	defer stop()
	_, err := f.file.Write(data)
	return err
}

func (f *fifo) close() {
	if f.file != nil {
		_ = f.file.Close()
		f.file = nil
	}
}
