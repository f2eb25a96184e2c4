// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

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

// ProcessName is the name of the process that holds log pipes open. A program that
// serves the task driver must call Serve when it is started under that name.
const ProcessName = "nomad-gpu-mem-log-pipes"

// Keeper is the plugin's side of the process that holds the writing ends of all tasks'
// log pipes open.
//
// Nomad's log collector reads a pipe until its last writer is gone, and takes that
// for the end of the task: whatever is written later stays in the pipe unread. If
// this process were the only writer, a task's log would end with it. The process
// that holds them does nothing else and needs nothing, so it outlives plugin and
// agent; it ends when it holds no more.
type Keeper struct {
	socket string     // where it listens
	mu     sync.Mutex // one starts it
}

const (
	socketName = "log-pipes.sock" // in state_dir
	network    = "unixpacket"     // keeps messages apart

	maxSocketPath = 107 // bytes; the kernel's sun_path, less the zero at its end

	// answerTime is what an answer may take; the process may have to start first.
	answerTime = 10 * time.Second

	tries     = 3                     // of a message, each with a process of its own if need be
	lockRetry = 20 * time.Millisecond // between two looks at the lock
)

// A message is one of these and the task; an answer is one byte.
const (
	holdMessage    = "+"
	releaseMessage = "-"
)

// CheckStateDir fails if the path of a state_dir is too long for the socket in it.
func CheckStateDir(dir string) error {
	if len(filepath.Join(dir, socketName)) <= maxSocketPath {
		return nil
	}
	return fmt.Errorf("state_dir = %q is too long for the socket %s in it, want at most %d bytes",
		dir, socketName, maxSocketPath-len("/"+socketName))
}

// NewKeeper returns the keeper of a state_dir. The process starts with the first pipe.
func NewKeeper(stateDir string) *Keeper {
	return &Keeper{socket: filepath.Join(stateDir, socketName)}
}

// Hold has a task's pipes held, in the place of those that are held for it already. It leaves out files other than pipes:
// they have no reader whose end could be seen.
func (k *Keeper) Hold(task string, files ...*os.File) error {
	pipes := pipesOf(files)
	if len(pipes) == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	unlock, err := k.lock()
	if err != nil {
		return fmt.Errorf("cannot lock the start of the process that holds log pipes: %w", err)
	}
	defer unlock()
	var failed []error
	for range tries {
		if k.tell(holdMessage+task, pipes) == nil {
			return nil
		}
		// There is none, or it was just about to end.
		conn, err := k.start()
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
func (k *Keeper) lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(k.socket), 0o700); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	lock := flock.New(k.socket+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, lockRetry); err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

// Release closes a task's pipes.
func (k *Keeper) Release(task string) error {
	err := k.tell(releaseMessage+task, nil)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil // there is none, so nothing is held
	}
	return err
}

func (k *Keeper) tell(message string, pipes []*os.File) error {
	conn, err := net.DialUnix(network, nil, k.address())
	if err != nil {
		return err
	}
	return send(conn, message, pipes)
}

// start starts the process and returns a connection to it, which it finds waiting: it
// would end if there was none.
func (k *Keeper) start() (*net.UnixConn, error) {
	if err := os.RemoveAll(k.socket); err != nil {
		return nil, err
	}
	listener, err := net.ListenUnix(network, k.address())
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
	conn, err := net.DialUnix(network, nil, k.address())
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe", // also after the file was replaced by an upgrade
		Args:        []string{ProcessName, k.socket},
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

func (k *Keeper) address() *net.UnixAddr {
	return &net.UnixAddr{Name: k.socket, Net: network}
}

// send sends a message with files, waits until it is answered, and closes conn.
func send(conn *net.UnixConn, message string, files []*os.File) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
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
