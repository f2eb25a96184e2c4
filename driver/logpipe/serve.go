// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package logpipe

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Serve is the process that holds log pipes: it takes and closes them by the plugin's messages, closes those without a
// reader, and ends when it holds none and no message waits. It has one thread, and no message delays the
// others for long. It returns an error if it was not started by a Keeper.
func Serve(args []string) error {
	if len(args) != 1 { // where it listens, for people who look at processes
		return fmt.Errorf("%s is started by the task driver only", ProcessName)
	}
	h := &heldPipes{listener: inheritedListener}
	for {
		again, err := h.step()
		if err != nil {
			return fmt.Errorf("holding log pipes: %w", err)
		}
		if !again {
			return nil
		}
	}
}

const (
	inheritedListener = 3 // standard streams come first

	messageMost = 4096 // bytes
	pipesMost   = 8    // of a message: a task has two

	// patience is how long one message may keep the others waiting.
	patience = 5 * time.Second
)

// heldPipes are the pipes that the process holds.
type heldPipes struct {
	listener int
	pipes    []heldPipe
}

type heldPipe struct {
	task string
	fd   int
}

// step waits for an event and handles it. again is false once there is nothing to wait
// for.
func (h *heldPipes) step() (again bool, err error) {
	watched := []unix.PollFd{{Fd: int32(h.listener), Events: unix.POLLIN}}
	for _, pipe := range h.pipes {
		watched = append(watched, unix.PollFd{Fd: int32(pipe.fd)})
	}
	timeout := -1
	if len(h.pipes) == 0 {
		timeout = 0
	}
	happened, err := unix.Poll(watched, timeout)
	if errors.Is(err, syscall.EINTR) {
		return true, nil
	}
	if err != nil || happened == 0 {
		return false, err
	}
	var unread []int
	for _, pipe := range watched[1:] {
		if pipe.Revents != 0 {
			unread = append(unread, int(pipe.Fd))
		}
	}
	h.drop(func(pipe heldPipe) bool { return slices.Contains(unread, pipe.fd) })
	if watched[0].Revents != 0 {
		h.hear()
	}
	return true, nil
}

func (h *heldPipes) drop(which func(heldPipe) bool) {
	h.pipes = slices.DeleteFunc(h.pipes, func(pipe heldPipe) bool {
		if !which(pipe) {
			return false
		}
		_ = unix.Close(pipe.fd)
		return true
	})
}

// hear takes one message and answers it. One that it does not understand gets no
// answer.
func (h *heldPipes) hear() {
	conn, _, err := unix.Accept4(h.listener, unix.SOCK_CLOEXEC)
	if err != nil {
		if !errors.Is(err, syscall.EAGAIN) {
			time.Sleep(time.Second) // out of files or memory: others may give some back
		}
		return
	}
	defer func() { _ = unix.Close(conn) }()
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	if unix.SetsockoptTimeval(conn, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit) != nil {
		return
	}
	text, fds, err := receive(conn)
	if err != nil || len(text) == 0 {
		closeAll(fds)
		return
	}
	verb, task := text[:1], text[1:]
	if verb != holdMessage && verb != releaseMessage {
		closeAll(fds)
		return
	}
	h.drop(func(pipe heldPipe) bool { return pipe.task == task })
	for _, fd := range fds {
		h.pipes = append(h.pipes, heldPipe{task, fd})
	}
	_, _ = unix.Write(conn, []byte{1})
}

// receive reads one message with the files that came with it, also together with an
// error.
func receive(conn int) (text string, fds []int, err error) {
	message, rights := make([]byte, messageMost), make([]byte, unix.CmsgSpace(4*pipesMost))
	n, rightsLen, _, _, err := unix.Recvmsg(conn, message, rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return "", nil, err
	}
	controls, err := unix.ParseSocketControlMessage(rights[:rightsLen])
	if err != nil {
		return "", nil, err
	}
	for _, control := range controls {
		sent, err := unix.ParseUnixRights(&control)
		if err != nil {
			return "", fds, err
		}
		fds = append(fds, sent...)
	}
	return string(message[:n]), fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
