// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/docker/docker/client"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
)

// Image is what a task needs to know of the image it runs from.
type Image struct {
	ID         string
	Env        []string
	User       string
	StopSignal string
	Labels     map[string]string
	Digests    []string // by which registries know it: repository@sha256:...
}

// PullRequest asks for an image.
type PullRequest struct {
	// Ref is the image's name as in a job: "redis", "redis:7", "host:5000/team/app@sha256:...", or an image ID. A leading
	// "https://" is ignored.
	Ref string
	// Force pulls even if the image is there.
	Force bool
	// Load opens an image archive (as from docker save, or an OCI layout) that is loaded in place of a pull. Nil: none. Its
	// author is not trusted: it must have the image of that name and no other, and the image gets no name.
	Load func() (io.ReadCloser, error)
	// Auth are the task's own credentials, or its wish for none. Nil: those of Config.
	Auth *Auth
	// AuthSoftFail reports missing credentials to Progress and makes the pull anonymous.
	AuthSoftFail bool
	// Timeout bounds the whole, IdleTimeout the time without any news from the daemon. 0: no bound.
	Timeout, IdleTimeout time.Duration
	// Progress gets a message when a pull begins or is joined, and every two minutes how far it is. May be nil.
	Progress func(msg string)
}

func (r PullRequest) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// EnsureImage ensures that an image exists.
//
// An image with a fixed name (a tag other than latest, a digest, an ID) that is there is used as it is, unless Force is set.
// Else it is loaded from the archive, if there is one, and pulled if not. So "latest" is pulled at every start, and an image
// of that tag that was made locally and exists in no registry is an error.
//
// Calls for the same image and credentials share one pull, each with its own Timeout. Errors: ErrImageName, ErrImage,
// ErrUnavailable, or the cause of ctx.
func (c *Client) EnsureImage(ctx context.Context, req PullRequest) (Image, error) {
	ref, err := parseRef(req.Ref)
	if err != nil {
		return Image{}, err
	}
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.Timeout, fmt.Errorf(
			"%w: %q was not pulled within %s, raise image_pull_timeout or check the registry: %w",
			ErrImage, req.Ref, req.Timeout, context.DeadlineExceeded))
		defer cancel()
	}
	if ref.fixed && !req.Force {
		img, err := c.inspectImage(ctx, ref)
		if err == nil || !errors.Is(err, ErrImage) {
			return img, err
		}
	}
	switch {
	case req.Load != nil:
		return c.load(ctx, ref, req.Load)
	case ref.registry == "":
		return Image{}, fmt.Errorf("%w: %q is an image ID that is not on this host, and IDs cannot be pulled: name a repository",
			ErrImage, ref.name)
	}
	if err := c.pull(ctx, ref, req); err != nil {
		return Image{}, err
	}
	return c.inspectImage(ctx, ref)
}

// imageError is wrap for calls that bring an image here: whatever the daemon could not do is ErrImage.
func imageError(err error, format string, args ...any) error {
	err = wrap(err, format, args...)
	if err == nil || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrImage) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrImage, err)
}

// inspectImage looks an image up. ErrImage if it is not there.
func (c *Client) inspectImage(ctx context.Context, ref imageRef) (Image, error) {
	got, err := ask(c, func(api *client.Client) (image.InspectResponse, error) { return api.ImageInspect(ctx, ref.name) })
	if cerrdefs.IsNotFound(err) {
		return Image{}, fmt.Errorf("%w: %q is not on this host: %w", ErrImage, ref.name, err)
	}
	if err != nil {
		return Image{}, wrap(err, "looking up image %q", ref.name)
	}
	img := Image{ID: got.ID, Digests: got.RepoDigests}
	if got.Config != nil {
		img.Env = got.Config.Env
		img.User = got.Config.User
		img.StopSignal = got.Config.StopSignal
		img.Labels = got.Config.Labels
	}
	return img, nil
}

// RemoveImage removes an image by ID, all its tags with it. It returns nil for one that is gone or in use by a container. The
// pause image stays: a task may have run from it.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	if c.infra.holds(id) {
		return nil
	}
	err := c.timing.retry(ctx, func() error {
		return do(c, func(api *client.Client) error {
			_, err := api.ImageRemove(ctx, id, image.RemoveOptions{Force: true, PruneChildren: true})
			return err
		})
	})
	if cerrdefs.IsNotFound(err) || cerrdefs.IsConflict(err) {
		return nil
	}
	return wrap(err, "removing image %s", id)
}

// FamiliarName is an image's name as people write it, with its tag: "redis" is redis:latest. What cannot be a name stays as it
// is.
func FamiliarName(name string) string {
	ref, err := parseRef(name)
	if err != nil || ref.registry == "" {
		return name
	}
	named, err := reference.ParseNormalizedNamed(ref.name)
	if err != nil {
		return name
	}
	return reference.FamiliarString(named)
}

// ByDigest is the complete name of an image with its digest and without a tag, which Docker ignores beside a digest. It is
// empty for a name without a digest, and for an image ID: that names what Docker has, and not what a registry gave out.
func ByDigest(name string) string {
	ref, err := reference.ParseNormalizedNamed(strings.TrimPrefix(name, "https://"))
	if err != nil {
		return ""
	}
	digested, ok := ref.(reference.Digested)
	if !ok {
		return ""
	}
	return ref.Name() + "@" + digested.Digest().String()
}

// imageRef is a parsed image name.
type imageRef struct {
	name     string // complete: with registry and tag, or an image ID
	registry string // host[:port], "docker.io" for Docker Hub; empty for an image ID
	fixed    bool   // names one image for good: it need not be pulled if it is there
}

func parseRef(name string) (imageRef, error) {
	if name == "" {
		return imageRef{}, fmt.Errorf("%w: image name required", ErrImageName)
	}
	ref, err := reference.ParseAnyReference(strings.TrimPrefix(name, "https://"))
	if err != nil {
		return imageRef{}, fmt.Errorf("%w: %q: %w", ErrImageName, name, err)
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return imageRef{name: ref.String(), fixed: true}, nil
	}
	named = reference.TagNameOnly(named)
	_, digested := named.(reference.Digested)
	tagged, hasTag := named.(reference.Tagged)
	return imageRef{
		name:     named.String(),
		registry: reference.Domain(named),
		fixed:    digested || (hasTag && tagged.Tag() != "latest"),
	}, nil
}
