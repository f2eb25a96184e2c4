package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// HolderName is the name of the processes that hold log pipes open. A program that
// serves this plugin must call Hold when it is started under that name.
const HolderName = "nomad-gpu-mem-log-pipes"

// holder is a process that holds the writing ends of one task's log pipes open.
//
// Nomad's log collector reads a pipe until its last writer is gone, and takes that
// for the end of the task: whatever is written later stays in the pipe unread. If
// this process were the only writer, a task's log would end with it. The holder
// does nothing and needs nothing, so it outlives plugin and agent; it ends when the
// collector does, or when the task has no more to say.
//
// Its lock file, in the task's directory and not mounted into the container, tells
// whether a holder is there and which process it is.
type holder struct{ dir string }

const holderFile = ".gpu-docker-pipes"

// start sees to it that a holder has the pipes. One that an earlier process of the
// plugin started is as good as a new one. Files that are no pipes are left out: they
// have no reader whose end could be seen.
func (h holder) start(files ...*os.File) error {
	lock, err := h.lock()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot hold the task's log pipes: %w", err)
	}
	defer lock.Close() // the holder has inherited it, and the lock with it
	pipes := pipesOf(files)
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe", // also after the file was replaced by an upgrade
		Args:        []string{HolderName, strconv.Itoa(len(pipes))},
		Env:         []string{},
		Dir:         "/",
		ExtraFiles:  append([]*os.File{lock}, pipes...),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start the process that holds the task's log pipes: %w", err)
	}
	go func() { _ = cmd.Wait() }() // ends with the holder, which may be after this process
	_, err = lock.WriteAt([]byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0)
	return err
}

func pipesOf(files []*os.File) []*os.File {
	return slices.DeleteFunc(files, func(file *os.File) bool {
		info, err := file.Stat()
		return err != nil || info.Mode()&os.ModeNamedPipe == 0
	})
}

// stop ends the holder, if there is one.
func (h holder) stop() error {
	lock, err := h.lock()
	if err == nil {
		return lock.Close()
	}
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return err
	}
	// It is locked, so the process that the file names is alive and the holder.
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	text, err := root.ReadFile(holderFile)
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("%s names no process", filepath.Join(h.dir, holderFile))
	}
	return syscall.Kill(pid, syscall.SIGTERM)
}

// lock opens the lock file and locks it, empty. EWOULDBLOCK means that a holder has
// it.
func (h holder) lock() (*os.File, error) {
	root, err := os.OpenRoot(h.dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.OpenFile(holderFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Hold is the life of a holder: it waits until the readers of all inherited pipes
// are gone. Its argument is how many there are.
func Hold(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s is started by the task driver only", HolderName)
	}
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("number of pipes: %w", err)
	}
	pipes := make([]unix.PollFd, count)
	for i := range pipes {
		pipes[i].Fd = int32(firstPipe + i)
	}
	for len(pipes) > 0 {
		if _, err := unix.Poll(pipes, -1); err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("waiting for the readers of log pipes: %w", err)
		}
		pipes = slices.DeleteFunc(pipes, func(pipe unix.PollFd) bool {
			return pipe.Revents&(unix.POLLERR|unix.POLLNVAL) != 0
		})
	}
	return nil
}

// firstPipe is the first inherited pipe: standard streams and the lock come first.
const firstPipe = 4
