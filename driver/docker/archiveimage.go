// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// archivedImage is the one image of an archive.
type archivedImage struct {
	names  []string // that the archive gives it, as written there
	config []byte   // its configuration
	layers []extent // from the lowest up
	ids    []string // by which engines know it: the digests of its configuration, its manifest, and the index of its platforms
}

// savedImage is an entry of manifest.json, as `docker save` writes it.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

const (
	savedManifest = "manifest.json" // of docker save
	savedNames    = "repositories"  // of docker save, before Docker 1.10 and beside savedManifest up to 24
	layoutIndex   = "index.json"    // of the OCI image layout
	layoutVersion = "oci-layout"
)

// image finds the image of an archive of either format. Where both are, as in those of Docker 25 and later, Docker goes by
// manifest.json or by index.json, depending on its image store: so the names in both count.
func (a *archive) image() (archivedImage, error) {
	switch {
	case a.has(savedManifest):
		found, err := a.saved()
		if err == nil && a.has(layoutIndex) {
			var index layout
			err = a.decode(layoutIndex, &index)
			found.names = append(found.names, index.names()...)
			found.ids = append(found.ids, a.sameImage(index, found.config)...)
		}
		return found, err
	case a.has(layoutIndex) && a.has(layoutVersion):
		return a.laidOut()
	case a.has(savedNames):
		return archivedImage{}, fmt.Errorf("it was saved by a version of Docker before 1.10: save it again")
	}
	return archivedImage{}, fmt.Errorf("it has neither %s nor %s: it is not an image archive", savedManifest, layoutIndex)
}

// saved reads the format of docker save.
func (a *archive) saved() (found archivedImage, err error) {
	var images []savedImage
	if err := a.decode(savedManifest, &images); err != nil {
		return found, err
	}
	if len(images) != 1 {
		return found, fmt.Errorf("it has %d images: save one alone", len(images))
	}
	found.names = images[0].RepoTags
	if a.has(savedNames) {
		var byRepository map[string]map[string]string
		if err := a.decode(savedNames, &byRepository); err != nil {
			return found, err
		}
		for repository, tags := range byRepository {
			for tag := range tags {
				found.names = append(found.names, repository+":"+tag)
			}
		}
	}
	if found.config, err = a.metadata(images[0].Config); err != nil {
		return found, err
	}
	found.ids = append(found.ids, digestOf(found.config))
	for _, name := range images[0].Layers {
		layer, err := a.file(name)
		if err != nil {
			return found, err
		}
		found.layers = append(found.layers, layer)
	}
	return found, nil
}

// sameImage returns the digests under which an index has the image with this configuration. A blob is what its digest says, so
// they are the image's IDs in containerd's image store.
func (a *archive) sameImage(index layout, config []byte) []string {
	if len(index.Manifests) != 1 {
		return nil
	}
	laid, err := a.laidOut()
	if err != nil || digestOf(laid.config) != digestOf(config) {
		return nil
	}
	return laid.ids
}

// layout is an index or a manifest of the OCI image layout.
type layout struct {
	Manifests []descriptor
	Config    descriptor
	Layers    []descriptor
}

type descriptor struct {
	Digest      string
	Annotations map[string]string
	Platform    struct{ OS, Architecture string }
}

// names are those of all images in an index.
func (l layout) names() (names []string) {
	for _, d := range l.Manifests {
		for _, key := range []string{"io.containerd.image.name", "org.opencontainers.image.ref.name"} {
			if name := d.Annotations[key]; name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// laidOut reads the OCI image layout. Of an image for several platforms it takes the one for this machine.
func (a *archive) laidOut() (found archivedImage, err error) {
	var index, manifest layout
	if err := a.decode(layoutIndex, &index); err != nil {
		return found, err
	}
	if len(index.Manifests) != 1 {
		return found, fmt.Errorf("it has %d images: save one alone", len(index.Manifests))
	}
	found.names = index.names()
	found.ids = append(found.ids, index.Manifests[0].Digest)
	if err := a.decodeBlob(index.Manifests[0], &manifest); err != nil {
		return found, err
	}
	if len(manifest.Manifests) > 0 {
		at := slices.IndexFunc(manifest.Manifests, func(d descriptor) bool {
			return d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
		})
		if at < 0 {
			return found, fmt.Errorf("it has no image for linux/%s", runtime.GOARCH)
		}
		chosen := manifest.Manifests[at]
		found.ids = append(found.ids, chosen.Digest)
		manifest = layout{}
		if err := a.decodeBlob(chosen, &manifest); err != nil {
			return found, err
		}
	}
	if found.config, err = a.blob(manifest.Config); err != nil {
		return found, err
	}
	found.ids = append(found.ids, manifest.Config.Digest)
	for _, d := range manifest.Layers {
		name, err := d.file()
		if err != nil {
			return found, err
		}
		layer, err := a.file(name)
		if err != nil {
			return found, err
		}
		found.layers = append(found.layers, layer)
	}
	return found, nil
}

// file is the name of the file with a blob. What a layer has in it is checked by Docker, against the configuration.
func (d descriptor) file() (string, error) {
	hash, ok := strings.CutPrefix(d.Digest, "sha256:")
	if raw, err := hex.DecodeString(hash); !ok || err != nil || len(raw) != sha256.Size {
		return "", fmt.Errorf("%q is not a SHA-256 digest", d.Digest)
	}
	return path.Join("blobs/sha256", hash), nil
}

// blob returns a small blob that is what its digest says.
func (a *archive) blob(d descriptor) ([]byte, error) {
	name, err := d.file()
	if err != nil {
		return nil, err
	}
	text, err := a.metadata(name)
	if err == nil && digestOf(text) != d.Digest {
		err = fmt.Errorf("%q has another content than its name says", name)
	}
	return text, err
}

func (a *archive) decodeBlob(d descriptor, into any) error {
	text, err := a.blob(d)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("blob %s is not valid: %w", d.Digest, err)
	}
	return nil
}

func digestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// checkNames refuses an archive that gives its image another name than the job does, or none. The name decides nothing: the
// image is loaded without one. But who made such an archive expects something else to happen.
func (i archivedImage) checkNames(ref imageRef) error {
	for _, name := range i.names {
		if !ref.isNamed(name) {
			return fmt.Errorf("it has the image %q, and the job's image is %q: save that one alone", name, ref.name)
		}
	}
	if len(i.names) == 0 && ref.registry != "" {
		return fmt.Errorf("its image has no name, and the job's image is %q: save it by that name", ref.name)
	}
	return nil
}

// isNamed reports whether a name in an archive is that of the image. OCI layouts may have the tag alone.
func (r imageRef) isNamed(name string) bool {
	if r.registry == "" {
		return false // by its ID
	}
	parsed, err := reference.ParseNormalizedNamed(name)
	if err == nil && reference.TagNameOnly(parsed).String() == r.name {
		return true
	}
	wanted, err := reference.ParseNormalizedNamed(r.name)
	if err != nil {
		return false
	}
	tagged, ok := wanted.(reference.Tagged)
	return ok && tagged.Tag() == name
}

// rewrite writes an archive with the image, and nothing else, in the format that every Docker reads. Every name in it is ours.
// The image has no tag: a tag would replace what other jobs on this host know by it.
func (a *archive) rewrite(image archivedImage, to io.Writer) error {
	saved := savedImage{Config: "config.json", RepoTags: []string{}}
	contents := map[string]extent{}
	for n, layer := range image.layers {
		name := fmt.Sprintf("layer-%d.tar", n)
		saved.Layers = append(saved.Layers, name)
		contents[name] = layer
	}
	manifest, err := json.Marshal([]savedImage{saved})
	if err != nil {
		return err
	}
	out := tar.NewWriter(to)
	put := func(name string, size int64, content io.Reader) error {
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(out, content)
		return err
	}
	if err := put(savedManifest, int64(len(manifest)), strings.NewReader(string(manifest))); err != nil {
		return err
	}
	if err := put(saved.Config, int64(len(image.config)), strings.NewReader(string(image.config))); err != nil {
		return err
	}
	for _, name := range saved.Layers {
		if err := put(name, contents[name].size, a.spool.section(contents[name])); err != nil {
			return err
		}
	}
	return out.Close()
}
