package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"nomad-gpu-mem/driver/docker"
)

// checkpoint keeps how far a container's output was copied in a file in the task's
// directory. That directory is not mounted into the container, but parts of it are:
// the file is reached through os.Root, which no link can lead astray.
//
// It is written after each delivery into the pipes, in place and with one call: a
// plugin that is killed repeats one delivery at most, of whole lines.
type checkpoint struct {
	file      *os.File
	container string
}

const (
	checkpointFile = ".gpu-docker-logs.json"
	checkpointSize = 512 // of the file: the record, and blanks
)

// checkpointText is the file's content.
type checkpointText struct {
	Container string             `json:"container"`
	Position  docker.LogPosition `json:"position"`
}

// openCheckpoint returns where to go on: the beginning if nothing was saved of this
// container, and also together with an error.
func openCheckpoint(dir, container string) (*checkpoint, docker.LogPosition, error) {
	var begin docker.LogPosition
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, begin, err
	}
	defer root.Close()
	file, err := root.OpenFile(checkpointFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, begin, err
	}
	c := &checkpoint{file: file, container: container}
	text, err := io.ReadAll(io.LimitReader(file, checkpointSize))
	if err != nil || len(text) == 0 {
		return c, begin, err
	}
	var saved checkpointText
	if err := json.Unmarshal(text, &saved); err != nil {
		return c, begin, fmt.Errorf("%s: %w", checkpointFile, err)
	}
	if saved.Container != container {
		return c, begin, nil
	}
	return c, saved.Position, nil
}

func (c *checkpoint) save(position docker.LogPosition) error {
	record, err := json.Marshal(checkpointText{c.container, position})
	if err != nil {
		return err
	}
	if len(record) >= checkpointSize {
		return errors.New("log checkpoint is too long")
	}
	for len(record) < checkpointSize-1 {
		record = append(record, ' ')
	}
	_, err = c.file.WriteAt(append(record, '\n'), 0)
	return err
}

func (c *checkpoint) close() { _ = c.file.Close() }
