// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/docker/docker/api/types/image"
)

// entry is one file of an archive.
type entry struct {
	header *tar.Header
	data   []byte
}

// readArchive splits an archive of `docker save` into its manifest and the rest,
// without the files for older engines.
func readArchive(archive []byte) (manifest []map[string]any, rest []entry, err error) {
	for from := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return manifest, rest, nil
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(from)
		if err != nil {
			return nil, nil, err
		}
		switch header.Name {
		case "manifest.json":
			if err := json.Unmarshal(data, &manifest); err != nil {
				return nil, nil, err
			}
		case "repositories":
		default:
			rest = append(rest, entry{header, data})
		}
	}
}

func writeArchive(entries []entry) ([]byte, error) {
	var out bytes.Buffer
	to := tar.NewWriter(&out)
	for _, e := range entries {
		if e.header.Typeflag == tar.TypeReg {
			e.header.Size = int64(len(e.data))
		}
		if err := to.WriteHeader(e.header); err != nil {
			return nil, err
		}
		if _, err := to.Write(e.data); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), to.Close()
}

func plain(name string, data []byte) entry {
	return entry{&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, data}
}

// tagged is the archive's manifest with other tags.
func tagged(manifest []map[string]any, tags ...string) []byte {
	first := map[string]any{}
	for key, value := range manifest[0] {
		first[key] = value
	}
	first["RepoTags"] = tags
	text, _ := json.Marshal([]any{first}) // it came as JSON
	return text
}

// forge returns the files with a forged manifest that are written before and after the
// image's own.
type forge func(s *scene, manifest []map[string]any) (before, after []entry)

// download puts an archive of the attacker's image into local/, as an artifact block does.
// The image requests all GPUs, and the host does not have it otherwise.
func download(how forge) func(s *scene, in *intruder) error {
	return func(s *scene, in *intruder) error {
		if err := s.stage.commit(intruderImage, "ENV NVIDIA_VISIBLE_DEVICES=all", "ENV TENANT=attacker",
			`ENTRYPOINT ["/bin/sleep"]`, `CMD ["100000"]`); err != nil {
			return err
		}
		saved, err := s.stage.save(intruderImage)
		if err != nil {
			return err
		}
		if _, err := s.stage.api.ImageRemove(s.stage.ctx, intruderImage, image.RemoveOptions{Force: true}); err != nil {
			return err
		}
		manifest, rest, err := readArchive(saved)
		if err != nil {
			return err
		}
		before, after := how(s, manifest)
		archive, err := writeArchive(slices.Concat(before, rest, after))
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(in.alloc.dir, in.job.task, "local", "img.tar"), archive, 0o644)
	}
}
