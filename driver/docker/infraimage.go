// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"nomad-gpu-mem/driver/statefile"
)

// infraPin remembers which image the name of the pause image led to first. Names can be given to other images on the host; the
// pause image runs outside of what Nomad limits, in every group with a network of its own.
type infraPin struct {
	path string // of its file; empty: it lasts as long as the process

	mu     sync.Mutex
	read   bool
	pinned pinnedImage
}

// pinnedImage is an image by its ID and by what registries call it. Docker's ID of an image changes with Docker's image store.
type pinnedImage struct {
	Name    string   `json:"name"` // as the operator wrote it
	ID      string   `json:"id"`
	Digests []string `json:"digests,omitempty"` // repository@sha256:...
}

// pinnedText is the content of the file.
type pinnedText struct {
	Version int `json:"version"`
	pinnedImage
}

// readPin returns the content of the file. The error matches fs.ErrNotExist if there is none, and statefile.ErrNewer if it is
// of a newer version: then it is never overwritten.
func readPin(path string) (pinnedImage, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return pinnedImage{}, err
	}
	if err := statefile.CheckVersion(path, text); err != nil {
		return pinnedImage{}, err
	}
	var saved pinnedText
	err = json.Unmarshal(text, &saved)
	return saved.pinnedImage, err
}

func (p pinnedImage) is(image Image) bool {
	return image.ID == p.ID || slices.ContainsFunc(image.Digests, func(d string) bool { return slices.Contains(p.Digests, d) })
}

// get returns the image that is pinned for a name; found is false if none is.
func (p *infraPin) get(name string) (pinned pinnedImage, found bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read && p.path != "" {
		p.pinned, err = readPin(p.path)
		if errors.Is(err, statefile.ErrNewer) {
			return pinnedImage{}, false, fmt.Errorf("which pause image was used is not known: %w", err)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return pinnedImage{}, false, fmt.Errorf("which pause image was used is not known: %w; remove %s to accept the present one", err, p.path)
		}
	}
	p.read = true
	return p.pinned, p.pinned.Name == name && p.pinned.ID != "", nil
}

func (p *infraPin) set(pinned pinnedImage) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.read, p.pinned = true, pinned
	if p.path == "" {
		return nil
	}
	text, err := json.Marshal(pinnedText{statefile.Version, pinned})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(p.path), 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(p.path, append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("cannot record which pause image is used: %w", err)
	}
	return nil
}

// holds reports whether an image is the pinned one.
func (p *infraPin) holds(id string) bool {
	pinned, _, err := p.get("")
	return err == nil && pinned.ID == id && id != ""
}

// infraImage returns the pause image: the one that was used first, as long as the operator configures the same name.
func (c *Client) infraImage(ctx context.Context, spec SandboxSpec) (Image, error) {
	name := c.config.InfraImage
	pinned, found, err := c.infra.get(name)
	if err != nil {
		return Image{}, err
	}
	if found {
		image, err := c.inspectImage(ctx, imageRef{name: pinned.ID, fixed: true})
		if !errors.Is(err, ErrImage) {
			return image, err
		}
	}
	image, err := c.EnsureImage(ctx, PullRequest{Ref: name, AuthSoftFail: true, Timeout: spec.PullTimeout, IdleTimeout: spec.IdleTimeout})
	if err != nil {
		return Image{}, err
	}
	if found && !pinned.is(image) {
		return Image{}, fmt.Errorf("%q is the image %s now, and it was %s, which is gone: if that is intended, remove %s and restart "+
			"the agent, or give infra_image another name", name, image.ID, pinned.ID, c.infra.path)
	}
	return image, c.infra.set(pinnedImage{Name: name, ID: image.ID, Digests: image.Digests})
}
