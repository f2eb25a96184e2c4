// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"errors"
	"io"
	"os"
	"sync"
)

// lastRead is the content that was last read or written, so that it need not be
// decoded again while the file is the same. The file is kept open: for so long
// nothing else can get its inode, and a file that has it is this one.
type lastRead struct {
	mu    sync.Mutex
	file  *os.File // nil: nothing is kept
	info  os.FileInfo
	table *table
}

// read returns the content of the file as it is now.
func (l *lastRead) read(path string) (*table, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now, err := os.Stat(path); err == nil && l.is(now) {
		return l.table, nil
	}
	file, info, err := open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	table, err := decode(text)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	l.keep(file, info, table)
	return table, nil
}

// remember keeps what was written. The caller has the lock: the file is still the
// one with this content.
func (l *lastRead) remember(path string, table *table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, info, err := open(path)
	if err != nil {
		return // it is read when it is needed
	}
	l.keep(file, info, table)
}

// is reports whether the file is the one that is kept. Its time and size tell
// whether a person has edited it in place, which this package never does.
func (l *lastRead) is(now os.FileInfo) bool {
	return l.file != nil && os.SameFile(l.info, now) && l.info.ModTime().Equal(now.ModTime()) && l.info.Size() == now.Size()
}

func (l *lastRead) keep(file *os.File, info os.FileInfo, table *table) {
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.info, l.table = file, info, table
}

// forget lets go of the file.
func (l *lastRead) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(nil, nil, nil)
}

// open opens the file and tells what it is, as of before anything is read of it.
func open(path string) (*os.File, os.FileInfo, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}
