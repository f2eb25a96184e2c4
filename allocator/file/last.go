// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package file

import (
	"errors"
	"io"
	"os"
	"sync"
)

// lastRead caches the content that was last read or written, so that it need not be decoded
// again while the file is the same. It keeps the file open, so that no other file can get
// its inode: a file with that inode is this one.
type lastRead struct {
	mu    sync.Mutex
	file  *os.File // nil if nothing is cached
	info  os.FileInfo
	table *table
}

// read returns the current content of the file.
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

// remember caches the written content. The caller must hold the lock, so that the file still
// has this content.
func (l *lastRead) remember(path string, table *table) {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, info, err := open(path)
	if err != nil {
		return // it is read when needed
	}
	l.keep(file, info, table)
}

// is reports whether the file is the cached one. Its time and size show an edit in place,
// which this package never makes.
func (l *lastRead) is(now os.FileInfo) bool {
	return l.file != nil && os.SameFile(l.info, now) && l.info.ModTime().Equal(now.ModTime()) && l.info.Size() == now.Size()
}

func (l *lastRead) keep(file *os.File, info os.FileInfo, table *table) {
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.info, l.table = file, info, table
}

// forget closes the file and drops the cache.
func (l *lastRead) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(nil, nil, nil)
}

// open opens the file and returns its info from before the first read.
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
