// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/shoenig/test/must"
)

// stage has what all scenes share: the engine, its images and the GPUs.
type stage struct {
	t      *testing.T
	ctx    context.Context
	run    string // the development cluster's directory
	api    *client.Client
	relay  *relay
	gpus   []gpu
	scenes map[string]*scene // by the operator's configuration

	baseImage, pauseImage string
	imageIDs              map[string]string // by name, as they must stay
	dockerRoot            string
}

// The victim's image has a name of the same length as the attacker's, so an archive can
// have either in the same place.
const (
	victimImage   = "tenant/app:7"
	intruderImage = "hostil/app:7"
)

func newStage(t *testing.T) *stage {
	t.Helper()
	run := os.Getenv("GPU_MEM_RUN")
	must.NotEq(t, "", run, must.Sprint("run these tests by `make test-attack`"))
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	must.NoError(t, err)
	t.Cleanup(func() { _ = api.Close() })
	s := &stage{
		t: t, ctx: context.Background(), run: run, api: api, scenes: map[string]*scene{}, gpus: newGPUs(t, run),
		baseImage: os.Getenv("GPU_MEM_TEST_IMAGE"), pauseImage: os.Getenv("GPU_MEM_TEST_PAUSE_IMAGE"),
		imageIDs: map[string]string{},
		relay:    newRelay(t, filepath.Join(run, "relay.sock"), filepath.Join(run, "docker.sock")),
	}
	info, err := api.Info(s.ctx)
	must.NoError(t, err)
	s.dockerRoot = info.DockerRootDir
	must.NoError(t, s.commit(victimImage, "ENV TENANT=victim"))
	for _, name := range []string{s.baseImage, s.pauseImage, victimImage} {
		s.imageIDs[name], err = s.imageID(name)
		must.NoError(t, err)
	}
	t.Cleanup(func() {
		for _, scene := range s.scenes {
			scene.close()
		}
	})
	return s
}

// commit makes an image from the base image, with the changes of `docker commit`.
func (s *stage) commit(name string, changes ...string) error {
	id, err := s.api.ContainerCreate(s.ctx, &container.Config{Image: s.baseImage, Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}, nil, nil, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = s.api.ContainerRemove(s.ctx, id.ID, container.RemoveOptions{Force: true}) }()
	_, err = s.api.ContainerCommit(s.ctx, id.ID, container.CommitOptions{
		Reference: name, Changes: append(changes, "LABEL unique="+uuid.Generate()),
	})
	return err
}

// commitLinks makes an image with links, each given by its name and its target.
func (s *stage) commitLinks(name string, links ...string) error {
	var entries []entry
	for pair := range slices.Chunk(links, 2) {
		entries = append(entries, entry{&tar.Header{Typeflag: tar.TypeSymlink, Name: pair[0], Linkname: pair[1], Mode: 0o777}, nil})
	}
	archive, err := writeArchive(entries)
	if err != nil {
		return err
	}
	made, err := s.api.ContainerCreate(s.ctx, &container.Config{Image: s.baseImage}, nil, nil, nil, "")
	if err != nil {
		return err
	}
	defer func() { _ = s.api.ContainerRemove(s.ctx, made.ID, container.RemoveOptions{Force: true}) }()
	if err := s.api.CopyToContainer(s.ctx, made.ID, "/", bytes.NewReader(archive), container.CopyToContainerOptions{}); err != nil {
		return err
	}
	_, err = s.api.ContainerCommit(s.ctx, made.ID, container.CommitOptions{Reference: name})
	return err
}

func (s *stage) imageID(name string) (string, error) {
	image, err := s.api.ImageInspect(s.ctx, name)
	return image.ID, err
}

// checkImages returns the names that now mean another image.
func (s *stage) checkImages() error {
	for name, want := range s.imageIDs {
		if got, err := s.imageID(name); err != nil || got != want {
			return fmt.Errorf("the host's image %s is %.19s now and was %.19s (%v)", name, got, want, err)
		}
	}
	return nil
}

// restoreImages makes the names mean the original images again.
func (s *stage) restoreImages() {
	for name, id := range s.imageIDs {
		if err := s.api.ImageTag(s.ctx, id, name); err != nil {
			s.t.Errorf("image %s: %v", name, err)
		}
	}
}

func (s *stage) inspect(id string) (container.InspectResponse, error) {
	return s.api.ContainerInspect(s.ctx, id)
}

// containers returns the IDs of all containers.
func (s *stage) containers() ([]string, error) {
	found, err := s.api.ContainerList(s.ctx, container.ListOptions{All: true})
	var ids []string
	for _, c := range found {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return ids, err
}

func (s *stage) remove(id string) {
	_ = s.api.ContainerRemove(s.ctx, id, container.RemoveOptions{Force: true})
}

// save returns an image as an archive.
func (s *stage) save(name string) ([]byte, error) {
	archive, err := s.api.ImageSave(s.ctx, []string{name})
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	return io.ReadAll(archive)
}

// asJSON is a container as requested from Docker, and as Docker made it.
func asJSON(c container.InspectResponse) string {
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode(c) // it came as JSON
	return text.String()
}

// eventually waits until a container has done something.
func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}
