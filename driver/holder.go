// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// HolderName is the name of the process that holds log pipes open. A program that
// serves this plugin must call Hold when it is started under that name.
const HolderName = "nomad-gpu-mem-log-pipes"

// holder is the plugin's side of a process that holds the writing ends of all tasks'
// log pipes open.
//
// Nomad's log collector reads a pipe until its last writer is gone, and takes that
// for the end of the task: whatever is written later stays in the pipe unread. If
// this process were the only writer, a task's log would end with it. The process
// that holds them does nothing else and needs nothing, so it outlives plugin and
// agent; it ends when it holds no more.
type holder struct {
	socket string     // where it listens
	mu     sync.Mutex // one starts it
}

const (
	holderSocket  = "log-pipes.sock" // in state_dir
	holderNetwork = "unixpacket"     // keeps messages apart

	maxSocketPath = 107 // bytes; the kernel's sun_path, less the zero at its end

	// holderTime is what an answer may take; the process may have to start first.
	holderTime = 10 * time.Second

	holderTries = 3                     // of a message, each with a process of its own if need be
	holderRetry = 20 * time.Millisecond // between two looks at the lock
)

// A message is one of these and the task; an answer is one byte.
const (
	holdMessage    = "+"
	releaseMessage = "-"
)

func newHolder(stateDir string) *holder {
	return &holder{socket: filepath.Join(stateDir, holderSocket)}
}

// hold sees to it that a task's pipes are held, in the place of those that are held
// for it already. Files that are no pipes are left out: they have no reader whose end
// could be seen.
func (h *holder) hold(task string, files ...*os.File) error {
	pipes := pipesOf(files)
	if len(pipes) == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	unlock, err := h.lock()
	if err != nil {
		return fmt.Errorf("cannot lock the start of the process that holds log pipes: %w", err)
	}
	defer unlock()
	var failed []error
	for range holderTries {
		if h.tell(holdMessage+task, pipes) == nil {
			return nil
		}
		// There is none, or it was just about to end.
		conn, err := h.start()
		if err != nil {
			return fmt.Errorf("cannot start the process that holds log pipes: %w", err)
		}
		if err = send(conn, holdMessage+task, pipes); err == nil {
			return nil
		}
		failed = append(failed, err)
	}
	return fmt.Errorf("the process that holds log pipes does not answer: %w", errors.Join(failed...))
}

// lock keeps other processes of the plugin from starting a holder at the same time: the
// second would take the socket of the first.
func (h *holder) lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(h.socket), 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), holderTime)
	defer cancel()
	lock := flock.New(h.socket+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, holderRetry); err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// release lets go of a task's pipes.
func (h *holder) release(task string) error {
	err := h.tell(releaseMessage+task, nil)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil // there is none, so nothing is held
	}
	return err
}

func (h *holder) tell(message string, pipes []*os.File) error {
	conn, err := net.DialUnix(holderNetwork, nil, h.address())
	if err != nil {
		return err
	}
	return send(conn, message, pipes)
}

// start starts the process and returns a connection to it, which it finds waiting: it
// would end if there was none.
func (h *holder) start() (*net.UnixConn, error) {
	if err := os.RemoveAll(h.socket); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix(holderNetwork, h.address())
	if err != nil {
		return nil, err
	}
	defer listener.Close() // the process has inherited it
	listener.SetUnlinkOnClose(false)
	file, err := listener.File()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	conn, err := net.DialUnix(holderNetwork, nil, h.address())
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe", // also after the file was replaced by an upgrade
		Args:        []string{HolderName, h.socket},
		Env:         []string{},
		Dir:         "/",
		ExtraFiles:  []*os.File{file},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go func() { _ = cmd.Wait() }() // ends with the process, which may be after this one
	return conn, nil
}

func (h *holder) address() *net.UnixAddr {
	return &net.UnixAddr{Name: h.socket, Net: holderNetwork}
}

// send sends a message with files, waits until it is answered, and closes conn.
func send(conn *net.UnixConn, message string, files []*os.File) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(holderTime)); err != nil {
		return err
	}
	numbers, err := descriptors(files)
	if err != nil {
		return err
	}
	if _, _, err := conn.WriteMsgUnix([]byte(message), unix.UnixRights(numbers...), nil); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// descriptors returns the files' numbers and leaves the files in the mode they are in.
func descriptors(files []*os.File) (numbers []int, err error) {
	for _, file := range files {
		raw, err := file.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { numbers = append(numbers, int(fd)) })
		}
		if err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

func pipesOf(files []*os.File) []*os.File {
	return slices.DeleteFunc(files, func(file *os.File) bool {
		info, err := file.Stat()
		return err != nil || info.Mode()&os.ModeNamedPipe == 0
	})
}
