// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// session is the process's NVML session. Only the node's lane uses it.
type session struct {
	path    string
	library *library
	open    bool
}

// library is NVML with a cache of its functions.
type library struct {
	nvml.Interface
	functions sync.Map // name to whether the loaded library has it
	sysfs     string   // where the kernel describes PCI devices
}

// has reports whether the loaded library has a function. Looking that up costs
// more than most functions do.
func (l *library) has(function string) bool {
	if known, ok := l.functions.Load(function); ok {
		return known.(bool)
	}
	has := l.Extensions().LookupSymbol(function) == nil
	l.functions.Store(function, has)
	return has
}

// begin loads NVML and starts the session, once. It first checks that the file is an NVML,
// since go-nvml would end the process for any other.
func (s *session) begin(p *probe) error {
	if s.open {
		return nil
	}
	library := dl.New(s.path, dl.RTLD_LAZY)
	if err := library.Open(); err != nil {
		return fmt.Errorf("cannot load NVML library %q: %w", s.path, err)
	}
	defer func() { _ = library.Close() }()
	for _, function := range []string{"nvmlInit_v2", "nvmlShutdown", "nvmlErrorString"} {
		if library.Lookup(function) != nil {
			return fmt.Errorf("library %q is not NVML: it has no %s", s.path, function)
		}
	}
	function := "nvmlInit_v2"
	p.current.Store(&function)
	defer p.current.Store(nil)
	if ret := s.library.Init(); ret != nvml.SUCCESS {
		return fmt.Errorf("starting NVML from %q: %w", s.path, &callError{function, ret, ret.Error()})
	}
	s.open = true
	return nil
}

func (s *session) end() {
	if s.open {
		// A session that cannot be ended counts as ended: begin starts another.
		_ = s.library.Shutdown()
		s.library.functions.Clear() // the next one may be another version
		s.open = false
	}
}

// nodeReading has NVML's values of the node.
type nodeReading struct {
	driver string
	cuda   *Version
	gpus   int
	err    error
}

func readNode(p *probe) (n nodeReading) {
	if n.gpus, n.err = query(p, "nvmlDeviceGetCount_v2", p.library.DeviceGetCount); n.err != nil {
		return n
	}
	// A missing version is not an error.
	n.driver, _ = query(p, "nvmlSystemGetDriverVersion", p.library.SystemGetDriverVersion)
	if cuda, err := query(p, "nvmlSystemGetCudaDriverVersion_v2", p.library.SystemGetCudaDriverVersion_v2); err == nil {
		n.cuda = &Version{Major: cuda / 1000, Minor: cuda % 1000 / 10}
	}
	return n
}
