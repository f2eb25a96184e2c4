// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// rowsOfImages attack by archives that a job loads, and by images that it has removed.
func rowsOfImages() (all []attack) {
	const own = "image = \"{image}\"\nload = \"img.tar\"\nentrypoint = [\"/bin/sh\"]"
	for _, c := range []struct {
		name, tries string
		how         forge
	}{
		{"archive-other-tag", "by one more tag in the archive", func(_ *scene, m []map[string]any) (_, after []entry) {
			return nil, []entry{plain("manifest.json", tagged(m, intruderImage, victimImage))}
		}},
		{"archive-pause-tag", "of all groups' networks, by one more tag in the archive", func(s *scene, m []map[string]any) (_, after []entry) {
			return nil, []entry{plain("manifest.json", tagged(m, intruderImage, s.stage.pauseImage))}
		}},
		{"archive-only-other-tag", "by an archive without its own tag", func(_ *scene, m []map[string]any) (_, after []entry) {
			return nil, []entry{plain("manifest.json", tagged(m, victimImage))}
		}},
		{"archive-two-images", "by a second image in the manifest", func(_ *scene, m []map[string]any) (_, after []entry) {
			first := tagged(m, intruderImage)
			return nil, []entry{plain("manifest.json", append(append(first[:len(first)-1:len(first)-1], ','), tagged(m, victimImage)[1:]...))}
		}},
		{"archive-two-manifests", "by a second manifest.json behind the first", func(_ *scene, m []map[string]any) (before, after []entry) {
			return []entry{plain("manifest.json", tagged(m, intruderImage))}, []entry{plain("manifest.json", tagged(m, victimImage))}
		}},
		{"archive-manifest-respelled", "by a second manifest under the name ./manifest.json", func(_ *scene, m []map[string]any) (before, after []entry) {
			return []entry{plain("manifest.json", tagged(m, intruderImage))}, []entry{plain("./manifest.json", tagged(m, victimImage))}
		}},
		{"archive-manifest-climbing", "by a second manifest under the name x/../manifest.json", func(_ *scene, m []map[string]any) (before, after []entry) {
			return []entry{plain("manifest.json", tagged(m, intruderImage))}, []entry{plain("x/../manifest.json", tagged(m, victimImage))}
		}},
		{"archive-manifest-link", "by a link in place of manifest.json", func(_ *scene, m []map[string]any) (before, after []entry) {
			return []entry{plain("manifest.json", tagged(m, intruderImage))}, []entry{
				plain("m.json", tagged(m, victimImage)),
				{&tar.Header{Typeflag: tar.TypeSymlink, Name: "manifest.json", Linkname: "m.json", Mode: 0o777}, nil},
			}
		}},
		{"archive-manifest-hard-link", "by a hard link in place of manifest.json", func(_ *scene, m []map[string]any) (before, after []entry) {
			return []entry{plain("manifest.json", tagged(m, intruderImage))}, []entry{
				plain("m.json", tagged(m, victimImage)),
				{&tar.Header{Typeflag: tar.TypeLink, Name: "manifest.json", Linkname: "m.json", Mode: 0o644}, nil},
			}
		}},
		{"archive-keys-in-capitals", "by tags under a key that differs in case", func(_ *scene, m []map[string]any) (before, after []entry) {
			text := bytes.Replace(tagged(m, intruderImage), []byte(`"RepoTags"`), []byte(`"RepoTags":["`+intruderImage+`"],"repotags"`), 1)
			return nil, []entry{plain("manifest.json", bytes.Replace(text, []byte(`"repotags":["`+intruderImage), []byte(`"repotags":["`+victimImage), 1))}
		}},
		{"archive-repositories", "by the tags of the oldest format", func(_ *scene, m []map[string]any) (before, after []entry) {
			return nil, []entry{plain("repositories", repositories(m))}
		}},
	} {
		all = append(all, attack{
			name: c.name, tries: "to replace another job's image, or that " + c.tries, looks: "what the names of images mean",
			job: job{config: own, script: `true`}, before: download(c.how),
		})
	}
	honest := func(_ *scene, m []map[string]any) (_, after []entry) {
		return nil, []entry{plain("manifest.json", tagged(m, intruderImage))}
	}
	foreign := func(name string) forge {
		return func(s *scene, m []map[string]any) (_, after []entry) {
			return nil, []entry{plain("manifest.json", tagged(m, map[bool]string{true: s.stage.pauseImage, false: victimImage}[name == "{pause}"]))}
		}
	}
	return append(all,
		attack{
			name: "archive-as-its-own", tries: "to replace another job's image by naming it as its own, with force_pull", looks: "what the names of images mean",
			job: job{config: "image = \"{victim-image}\"\nload = \"img.tar\"\nforce_pull = true\nentrypoint = [\"/bin/sh\"]", script: `true`}, before: download(foreign(victimImage)),
		},
		attack{
			name: "archive-as-pause", tries: "to replace the image of all groups' networks by naming it as its own, with force_pull", looks: "what the names of images mean",
			job: job{config: "image = \"{pause}\"\nload = \"img.tar\"\nforce_pull = true\nentrypoint = [\"/bin/sh\"]", script: `true`}, before: download(foreign("{pause}")),
		},
		attack{
			name: "archive-swapped", tries: "to replace another job's image by a manifest that changes once Docker is being handed the archive",
			looks: "what the names of images mean", job: job{config: own, script: `true`}, before: download(honest), act: swapArchive,
		},
		attack{
			name: "archive-pipe", tries: "to hold the driver up for ever by a pipe in place of an archive", looks: "whether the start returns",
			job: job{first: `mkfifo /local/img.tar`, config: own, script: `true`},
		},
		attack{
			name: "archive-disk", tries: "to have Docker read a disk of the host as an archive", needs: needsDisk, looks: "what Docker was handed",
			job: job{first: `mknod /local/img.tar {disk-node}`, config: own, script: `true`}, look: never(secret),
		},
		attack{
			name: "archive-link", tries: "to have Docker read a file of /etc as an archive, by a link", looks: "what Docker was handed",
			job: job{first: `ln -s {etc}/shadow /local/img.tar`, config: own, script: `true`}, look: never(secret),
		},
		attack{
			name: "archive-climb", tries: "the same, by ../../..", looks: "what Docker was handed",
			job: job{config: "image = \"{image}\"\nload = \"../../../../etc/shadow\"\nentrypoint = [\"/bin/sh\"]", script: `true`}, look: never(secret),
		},
		attack{
			name: "archive-by-linked-directory", tries: "the same, by a link in place of local/", looks: "what Docker was handed",
			job: job{firstConfig: `volumes = [".:/t"]`, first: `mv /t/local /t/x; ln -s {etc} /t/local`,
				config: "image = \"{image}\"\nload = \"shadow\"\nentrypoint = [\"/bin/sh\"]", script: `true`}, look: never(secret),
		},
		attack{
			name: "archive-of-all-gpus", tries: "to see every GPU by the environment of an image that it loads", looks: "GPUs that the container reaches",
			job: job{config: own, script: `true`}, before: download(honest), look: sees(),
		},
	)
}

// repositories is the file that had the tags before there were manifests.
func repositories(manifest []map[string]any) []byte {
	layer := ""
	if layers, ok := manifest[0]["Layers"].([]any); ok && len(layers) > 0 {
		layer = filepath.Dir(fmt.Sprint(layers[len(layers)-1]))
	}
	text, _ := json.Marshal(map[string]map[string]string{"tenant/app": {"7": layer}}) // strings only
	return text
}

// swapArchive changes the tag in the archive, in place, once the driver has begun to send
// it to Docker: the manifest is at its end.
func swapArchive(s *scene, in *intruder) error {
	path := filepath.Join(in.alloc.dir, in.job.task, "local", "img.tar")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	at := bytes.LastIndex(text, []byte(intruderImage))
	if at < 1<<20 || len(intruderImage) != len(victimImage) {
		return fmt.Errorf("the tag is at byte %d of the archive: too early to be changed", at)
	}
	var swapped error
	s.stage.relay.onLoad(func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteAt([]byte(victimImage), int64(at))
			err = errors.Join(err, file.Close())
		}
		swapped = err
	})
	return errors.Join(in.start(in.job.config, in.job.script), swapped)
}
