package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"nomad-gpu-mem/driver/docker"
)

// checkpoint keeps how far a container's output was copied in a file in the task's
// directory. That directory is not mounted into the container, but parts of it are:
// the file is reached through os.Root, which no link can lead astray.
type checkpoint struct {
	dir       string
	container string
}

const checkpointFile = ".gpu-docker-logs.json"

// checkpointText is the file's content.
type checkpointText struct {
	Container string             `json:"container"`
	Position  docker.LogPosition `json:"position"`
}

// load returns where to go on: the beginning if nothing was saved of this container.
func (c checkpoint) load() (docker.LogPosition, error) {
	var begin docker.LogPosition
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return begin, err
	}
	defer root.Close()
	text, err := root.ReadFile(checkpointFile)
	if errors.Is(err, fs.ErrNotExist) {
		return begin, nil
	}
	if err != nil {
		return begin, err
	}
	var saved checkpointText
	if err := json.Unmarshal(text, &saved); err != nil {
		return begin, fmt.Errorf("%s: %w", checkpointFile, err)
	}
	if saved.Container != c.container {
		return begin, nil
	}
	return saved.Position, nil
}

// save replaces the file, so that a crash leaves the old one or the new one.
func (c checkpoint) save(position docker.LogPosition) error {
	text, err := json.Marshal(checkpointText{c.container, position})
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	const temporary = checkpointFile + ".new"
	if err := root.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return root.Rename(temporary, checkpointFile)
}
