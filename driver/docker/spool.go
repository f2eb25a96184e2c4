// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// spool is a temporary file without a name: it goes with its descriptor, also in a crash. Only this process has ever seen it,
// so what was checked of it stays as it is.
type spool struct {
	ctx     context.Context
	file    *os.File
	size    int64
	reserve uint64 // bytes that must stay free on its file system
}

const (
	spoolReserve = 1 << 30
	spoolChunk   = 8 << 20 // bytes between two looks at what is free
)

// newSpool makes a spool in a directory; empty: that for temporary files.
func newSpool(ctx context.Context, dir string) (*spool, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("making room for a copy of the archive: %w", err)
		}
	}
	file, err := os.CreateTemp(dir, "image-archive-")
	if err != nil {
		return nil, fmt.Errorf("making room for a copy of the archive: %w", err)
	}
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("making room for a copy of the archive: %w", err)
	}
	return &spool{ctx: ctx, file: file, reserve: spoolReserve}, nil
}

func (s *spool) Close() error { return s.file.Close() }

// add copies one file to the end of the spool.
func (s *spool) add(from io.Reader) (extent, error) {
	at := extent{offset: s.size}
	for {
		if err := s.room(); err != nil {
			return extent{}, err
		}
		n, err := io.CopyN(s.file, from, spoolChunk)
		s.size += n
		at.size += n
		switch {
		case errors.Is(err, io.EOF):
			return at, nil
		case err != nil:
			return extent{}, err
		}
	}
}

// room fails when the context has ended, or the disk is about to be full.
func (s *spool) room() error {
	if err := s.ctx.Err(); err != nil {
		return context.Cause(s.ctx)
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(s.file.Fd()), &disk); err != nil {
		return fmt.Errorf("looking for free space: %w", err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < s.reserve+spoolChunk {
		return fmt.Errorf("the copy would leave less than %d MiB free in state_dir", s.reserve>>20)
	}
	return nil
}

func (s *spool) section(at extent) *io.SectionReader {
	return io.NewSectionReader(s.file, at.offset, at.size)
}
