// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package staging mounts what a container gets from its allocation's directory at paths that no task can change.
//
// Docker takes the source of a bind mount as a path, and looks it up once more when it starts the container. Another
// task of the same group may have put a link in the path's place by then, and Docker, which is root, would mount a
// directory of the host. So each source is looked up once, without following links, and held (package taskfile); the
// very file that was held is mounted at <state_dir>/staging/attempts/<attempt>/<number>, and Docker gets that path.
//
// staging is a tmpfs, so a reboot leaves nothing. Under it there is a file named attempts: a Docker daemon that does
// not see the mounts of this process finds that file, and refuses to start the container, instead of mounting an empty
// directory.
package staging
