// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package taskfile opens files and directories that a task could have changed. A task writes to parts of its
// allocation's directory as root, so any name in there may be a link, a device, a FIFO or a hard link by the time that
// the driver, which is root on the host, uses it.
//
// All access starts from a Dir and goes down one name at a time:
//
//   - No link is followed, neither in the path nor in the directory's own name. A name that is replaced during the walk
//     leads to the old or to the new directory, never elsewhere.
//   - A name is looked at before it is opened (O_PATH): a device, a FIFO or a socket is never opened by mistake, which
//     alone can reboot a node (watchdog) or block a thread for ever.
//   - What is opened for reading and writing is a regular file, without waiting, and read up to a given size. What is
//     written in place has no second name.
//
// The one exception is ReadHost, for files that an operator lets a job choose anywhere on the host: links are followed
// there, the rest holds.
package taskfile
