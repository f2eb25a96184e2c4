// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// archive is an image archive of a task, read once and to its end. The task may change the file meanwhile, and Docker may read
// an archive otherwise than this package does: names that occur twice, links, compression, JSON keys. So Docker never gets the
// task's bytes as they are, but an archive that is written from what was understood of them: see rewrite.
type archive struct {
	spool *spool
	files map[string]extent // by name
	links map[string]string // names of files by the names that stand for them
}

// extent is where in the spool a file's content is.
type extent struct{ offset, size int64 }

const (
	mostEntries  = 10_000  // of an archive; an image has at most 127 layers
	mostMetadata = 8 << 20 // bytes of a manifest, an index or an image's configuration
	mostHops     = 8       // from link to link
)

// readArchive copies the files of an archive into the spool.
func readArchive(from io.Reader, into *spool) (*archive, error) {
	plain, err := decompress(from)
	if err != nil {
		return nil, err
	}
	a := &archive{spool: into, files: map[string]extent{}, links: map[string]string{}}
	entries := tar.NewReader(plain)
	for n := 0; ; n++ {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return nil, fmt.Errorf("it is not a tar archive, or is damaged: %w", err)
		}
		if n == mostEntries {
			return nil, fmt.Errorf("it has more than %d entries", mostEntries)
		}
		if err := a.add(header, entries); err != nil {
			return nil, err
		}
	}
}

// decompress reads what Docker would decompress, too.
func decompress(from io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(from, 1<<16)
	start, _ := buffered.Peek(4) // a shorter one is not a tar archive: reading it fails
	switch {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		return gzip.NewReader(buffered)
	case bytes.HasPrefix(start, []byte("BZh")):
		return bzip2.NewReader(buffered), nil
	case bytes.HasPrefix(start, []byte{0xfd, '7', 'z', 'X'}), bytes.HasPrefix(start, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, fmt.Errorf("it is compressed by xz or zstd: use gzip, bzip2 or no compression")
	}
	return buffered, nil
}

func (a *archive) add(header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	switch header.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil
	case tar.TypeReg, tar.TypeSymlink, tar.TypeLink:
	default:
		return fmt.Errorf("%q is neither a file, a folder nor a link", header.Name)
	}
	if isSparse(header) {
		return fmt.Errorf("%q is a sparse file, which can grow without end: save the image by docker save", header.Name)
	}
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%q is not a path inside of it", header.Name)
	}
	_, isFile := a.files[name]
	if _, isLink := a.links[name]; isFile || isLink {
		return fmt.Errorf("it has %q twice", name)
	}
	switch header.Typeflag {
	case tar.TypeSymlink:
		a.links[name] = path.Join(path.Dir(name), header.Linkname) //nolint:gosec // names of the archive's own table, never of files
		return nil
	case tar.TypeLink:
		a.links[name] = path.Clean(header.Linkname)
		return nil
	}
	at, err := a.spool.add(content)
	if err != nil {
		return fmt.Errorf("reading %q: %w", name, err)
	}
	a.files[name] = at
	return nil
}

// isSparse reports whether an entry has holes that are not in the archive. Nothing that saves images makes such entries.
func isSparse(header *tar.Header) bool {
	for key := range header.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// has reports whether the archive has such a name, also as a link.
func (a *archive) has(name string) bool {
	_, isFile := a.files[name]
	_, isLink := a.links[name]
	return isFile || isLink
}

// file finds a file. Older versions of Docker save a layer that several images share as links.
func (a *archive) file(name string) (extent, error) {
	at := path.Clean(name)
	for range mostHops {
		if found, ok := a.files[at]; ok {
			return found, nil
		}
		next, ok := a.links[at]
		if !ok {
			break
		}
		at = next
	}
	return extent{}, fmt.Errorf("it has no file %q", name)
}

// metadata returns the content of a small file. Links do not count: nothing that saves images makes one of these a link.
func (a *archive) metadata(name string) ([]byte, error) {
	at, ok := a.files[path.Clean(name)]
	switch {
	case !ok:
		return nil, fmt.Errorf("it has no file %q", name)
	case at.size > mostMetadata:
		return nil, fmt.Errorf("%q is larger than %d bytes", name, mostMetadata)
	}
	return io.ReadAll(a.spool.section(at))
}

// decode reads a JSON file.
func (a *archive) decode(name string, into any) error {
	text, err := a.metadata(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%q is not valid: %w", name, err)
	}
	return nil
}
