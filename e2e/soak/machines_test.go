// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/docker/docker/client"
)

// machine is a node with its own engine.
type machine struct {
	number  int
	run     string // the engine's run directory; for number 0 also the cluster's
	slot    int
	scripts scripts
	docker  *client.Client
}

// name is the name of the node and its host name.
func (m *machine) name() string { return fmt.Sprintf("node-%d", m.number) }

func (m *machine) socket() string { return "unix://" + filepath.Join(m.run, "docker.sock") }

// engine is the daemon of the machine.
func (m *machine) engine() daemon { return daemon{name: "dockerd", run: m.run} }

// startEngine starts what the development cluster's scripts start for node 0.
func (m *machine) startEngine() error {
	for _, step := range [][]string{{"dockerd.sh", "start"}, {"image.sh"}, {"cdi.sh"}} {
		if _, err := m.scripts.do(step...); err != nil {
			return err
		}
	}
	return nil
}

// scripts runs the development cluster's scripts in an environment.
type scripts struct{ env []string }

const scriptTime = 20 * time.Minute // a script may wait until tools are built

func (s scripts) do(command ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scriptTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join("..", "..", "scripts", command[0]), command[1:]...)
	cmd.Env = s.env
	out, err := cmd.Output()
	if err != nil {
		var log []byte
		if exit, failed := errors.AsType[*exec.ExitError](err); failed {
			log = exit.Stderr
		}
		return "", fmt.Errorf("%v: %w\n%s%s", command, err, out, log)
	}
	return string(out), nil
}

const firstSlot, lastSlot = 20, 59 // with-dockerd.sh has those behind

// takeSlots claims free cluster numbers by making their bridges: the kernel makes each
// bridge only once.
func takeSlots(count int) (slots []int, err error) {
	for slot := firstSlot; slot <= lastSlot && len(slots) < count; slot++ {
		if exec.Command("ip", "link", "add", bridgeOf(slot), "type", "bridge").Run() != nil {
			continue
		}
		if !portsFree(slot) {
			_ = freeSlot(slot)
			continue
		}
		slots = append(slots, slot)
	}
	if len(slots) < count {
		err = fmt.Errorf("only %d slots of %d to %d are free", len(slots), firstSlot, lastSlot)
	}
	return slots, err
}

func bridgeOf(slot int) string { return "gpumem" + strconv.Itoa(slot) }

// freeSlot frees a slot; its bridge may be gone already.
func freeSlot(slot int) error {
	if _, err := net.InterfaceByName(bridgeOf(slot)); err != nil {
		return nil
	}
	return exec.Command("ip", "link", "delete", bridgeOf(slot)).Run()
}

// portsFree reports whether the agents of a slot could listen.
func portsFree(slot int) bool {
	for _, first := range []int{4646 + 10*slot, 8500 + 10*slot} {
		for port := first; port < first+10; port++ {
			listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
			if err != nil {
				return false
			}
			_ = listener.Close()
		}
	}
	return true
}
