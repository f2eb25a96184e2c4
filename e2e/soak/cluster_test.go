// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build e2e

package soak

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/client"
	consulapi "github.com/hashicorp/consul/api"
	"github.com/hashicorp/nomad/api"

	"nomad-gpu-mem/allocator"
	"nomad-gpu-mem/allocator/consul"
	"nomad-gpu-mem/internal/nvml/fakenvml"
)

const (
	nodes       = 3
	gpusPerNode = 2
	spare       = nodes - 1 // no fault ends the processes of this node's plugins

	answerTime = 20 * time.Second // of Nomad and of Docker
)

// cluster is the development cluster with a machine for each node.
type cluster struct {
	base     string // directory of all
	machines []*machine
	gpus     fakenvml.State
	nomad    *api.Client
	consul   *consulapi.Client
	table    *allocator.Table
	respawns sync.WaitGroup // processes that were started again

	gpuMu sync.Mutex // guards gpus and their state file
}

// startCluster starts everything. The caller calls down, also after an error.
func startCluster() (*cluster, error) {
	c := &cluster{}
	var err error
	if c.base, err = os.MkdirTemp("", "soak-"); err != nil {
		return c, err
	}
	for number := range nodes * gpusPerNode {
		c.gpus.GPUs = append(c.gpus.GPUs, fakenvml.NewGPU(0x10+number, "NVIDIA A10", uint64(8+number)*1024))
	}
	if err := errors.Join(c.gpus.Write(c.initialGPUs()), os.Mkdir(c.temp(), 0o700)); err != nil {
		return c, err
	}
	if err := c.makeMachines(); err != nil {
		return c, err
	}
	for _, m := range c.machines[1:] {
		if err := m.startEngine(); err != nil {
			return c, err
		}
	}
	if _, err := c.machines[0].scripts.do("cluster.sh", "up"); err != nil {
		return c, err
	}
	return c, c.connect()
}

// temp is the directory for temporary files of the cluster's processes only.
func (c *cluster) temp() string { return filepath.Join(c.base, "tmp") }

func (c *cluster) initialGPUs() string { return filepath.Join(c.base, "gpus.state") }

// run is the run directory of the cluster itself.
func (c *cluster) run() string { return c.machines[0].run }

func (c *cluster) makeMachines() error {
	slots, err := takeSlots(nodes)
	var sockets []string
	for number, slot := range slots {
		m := &machine{number: number, slot: slot, run: filepath.Join(c.base, strconv.Itoa(number))}
		c.machines = append(c.machines, m)
		sockets = append(sockets, m.socket())
	}
	if err != nil {
		return err
	}
	for _, m := range c.machines {
		m.scripts.env = append(os.Environ(), "TMPDIR="+c.temp(),
			"GPU_MEM_SLOT="+strconv.Itoa(m.slot), "GPU_MEM_RUN="+m.run, "GPU_MEM_STORE=consul",
			"GPU_MEM_GPUS=fake", "GPU_MEM_FAKE_STATE="+c.initialGPUs(),
			"GPU_MEM_NODES="+strconv.Itoa(nodes), "GPU_MEM_ENGINES="+strings.Join(sockets, " "),
			"GPU_MEM_TRUSTED=false", "GPU_MEM_DANGLING=1m", "GPU_MEM_PROBATION=1s")
		if m.docker, err = client.NewClientWithOpts(client.WithHost(m.socket()), client.WithAPIVersionNegotiation()); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) connect() (err error) {
	slot := c.machines[0].slot
	c.nomad, err = api.NewClient(&api.Config{
		Address:    fmt.Sprintf("http://127.0.0.1:%d", 4646+10*slot),
		HttpClient: &http.Client{Timeout: answerTime},
	})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", 8500+10*slot)
	c.consul, err = consulapi.NewClient(&consulapi.Config{Address: address, HttpClient: &http.Client{Timeout: answerTime}})
	if err != nil {
		return err
	}
	store, err := consul.New(consul.Config{Address: address, Prefix: "gpu-mem"})
	if err != nil {
		return err
	}
	c.table = allocator.NewTable(store)
	return nil
}

// down ends all processes and removes their files.
func (c *cluster) down() error {
	var failed []error
	if len(c.machines) == nodes {
		_, err := c.machines[0].scripts.do("cluster.sh", "down")
		failed = append(failed, err)
		for _, m := range c.machines[1:] {
			_, err := m.scripts.do("dockerd.sh", "stop")
			failed = append(failed, err)
		}
	}
	for _, m := range c.machines {
		failed = append(failed, freeSlot(m.slot))
	}
	c.respawns.Wait()
	return errors.Join(append(failed, os.RemoveAll(c.base))...)
}

// setGPUs changes the machines' GPUs.
func (c *cluster) setGPUs(change func([]fakenvml.GPU)) error {
	c.gpuMu.Lock()
	defer c.gpuMu.Unlock()
	change(c.gpus.GPUs)
	return c.gpus.Write(filepath.Join(c.run(), "nvml.state"))
}

// units returns the number of units of a GPU.
func (c *cluster) units(gpu int) int { return int(c.gpus.GPUs[gpu].MemoryMiB / 1024) }
