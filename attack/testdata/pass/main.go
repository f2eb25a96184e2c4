// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Pass hands a directory that one process has open to another, by an abstract socket: `pass give DIR` and `pass take SCRIPT`,
// which runs a shell script with the directory as descriptor 3.
package main

import (
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

const name = "@gpu-mem-attack"

func main() {
	run := give
	if os.Args[1] == "take" {
		run = take
	}
	if err := run(os.Args[2]); err != nil {
		println(err.Error())
		os.Exit(1)
	}
}

func give(dir string) error {
	opened, err := os.Open(dir)
	if err != nil {
		return err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return err
	}
	if _, _, err = conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(opened.Fd())), nil); err != nil {
		return err
	}
	_, _ = conn.Read(make([]byte, 1)) // until the other is done
	return nil
}

func take(script string) error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return err
	}
	conn, err := listener.AcceptUnix()
	if err != nil {
		return err
	}
	rights := make([]byte, unix.CmsgSpace(4))
	if _, _, _, _, err = conn.ReadMsgUnix(make([]byte, 1), rights); err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{os.NewFile(uintptr(fds[0]), "dir")}
	return cmd.Run()
}
