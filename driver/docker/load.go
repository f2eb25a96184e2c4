// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/docker/docker/pkg/jsonmessage"
)

// load brings an image from an archive and returns it by its ID. The image gets no name: jobs name the images of others, and an
// archive must not change what those names mean on this host.
//
// An image is what its ID says. One that is here already is not loaded once more. With the image store of containerd that is not
// known before it is loaded: an ID is the digest of a manifest there, which Docker makes. So a job's ID counts as any of those in
// the archive.
func (c *Client) load(ctx context.Context, ref imageRef, open func() (io.ReadCloser, error)) (Image, error) {
	spool, err := newSpool(ctx, c.config.SpoolDir)
	if err != nil {
		return Image{}, fmt.Errorf("%w: %w", ErrImage, err)
	}
	defer spool.Close()
	read, found, err := readImage(spool, ref, open)
	if err != nil {
		return Image{}, fmt.Errorf("%w: the archive of %q: %w", ErrImage, ref.name, err)
	}
	id := imageRef{name: digestOf(found.config), fixed: true}
	if ref.registry == "" {
		id = ref // Docker's image store may derive an ID from something else
	}
	image, err := c.inspectImage(ctx, id)
	if !errors.Is(err, ErrImage) {
		return image, err
	}
	loaded, err := c.loadArchive(ctx, read, found)
	if err != nil {
		return Image{}, imageError(err, "loading %q from its archive", ref.name)
	}
	if ref.registry == "" && loaded != ref.name && !slices.Contains(found.ids, ref.name) {
		return Image{}, fmt.Errorf("%w: the archive has the image %s, and the job's image is %s", ErrImage, loaded, ref.name)
	}
	return c.inspectImage(ctx, imageRef{name: loaded, fixed: true})
}

// readImage copies an archive and finds its image, if that is the one that the job names.
func readImage(into *spool, ref imageRef, open func() (io.ReadCloser, error)) (*archive, archivedImage, error) {
	file, err := open()
	if err != nil {
		return nil, archivedImage{}, err
	}
	defer file.Close()
	read, err := readArchive(file, into)
	if err != nil {
		return nil, archivedImage{}, err
	}
	found, err := read.image()
	if err != nil {
		return nil, archivedImage{}, err
	}
	return read, found, found.checkNames(ref)
}

// loadArchive has Docker load an image, and returns the ID that Docker gave it.
func (c *Client) loadArchive(ctx context.Context, read *archive, image archivedImage) (id string, err error) {
	reader, writer := io.Pipe()
	written := make(chan struct{})
	go func() { // it ends when the archive is written or its reader is closed
		defer close(written)
		writer.CloseWithError(read.rewrite(image, writer))
	}()
	defer func() {
		_ = reader.Close()
		<-written
	}()
	loaded, err := c.sessions.get().api.ImageLoad(ctx, reader) // what was read of the archive cannot be sent twice
	if err != nil {
		return "", err
	}
	defer loaded.Body.Close()
	err = readMessages(loaded.Body, func(m jsonmessage.JSONMessage) {
		if said, ok := strings.CutPrefix(strings.TrimSpace(m.Stream), "Loaded image ID: "); ok {
			id = said
		}
	})
	if err == nil && id == "" {
		err = fmt.Errorf("docker did not tell the ID of the image that it loaded")
	}
	return id, err
}
