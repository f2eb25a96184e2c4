// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// callError is an NVML function that returned an error code.
type callError struct {
	function string
	code     nvml.Return
	text     string // NVML's text
}

func (e *callError) Error() string { return fmt.Sprintf("%s: %s", e.function, e.text) }

// hasCode reports whether err is one of these codes, returned by NVML.
func hasCode(err error, codes ...nvml.Return) bool {
	var call *callError
	if !errors.As(err, &call) {
		return false
	}
	for _, code := range codes {
		if call.code == code {
			return true
		}
	}
	return false
}

// cannotTell reports whether err means that a value does not exist here, as opposed to a failed
// read.
func cannotTell(err error) bool {
	return hasCode(err, nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND)
}

// isGone reports whether err means that no value of the GPU is readable.
func isGone(err error) bool {
	return hasCode(err, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_UNINITIALIZED,
		nvml.ERROR_DRIVER_NOT_LOADED) || errors.Is(err, ErrHung)
}

// probe is one reading in progress. Its context ends the reading between two calls; a call
// cannot be cancelled.
type probe struct {
	ctx     context.Context
	library *library
	current atomic.Pointer[string] // the function being called, for error messages
}

// query calls one function. The name is the C symbol that go-nvml will call.
func query[T any](p *probe, function string, call func() (T, nvml.Return)) (T, error) {
	var none T
	if p.ctx.Err() != nil {
		return none, fmt.Errorf("%w: no time was left to call %s", ErrHung, function)
	}
	if !p.library.has(function) {
		return none, &callError{function, nvml.ERROR_FUNCTION_NOT_FOUND, "the driver's library has no such function"}
	}
	p.current.Store(&function)
	value, ret := call()
	p.current.Store(nil)
	if ret != nvml.SUCCESS {
		return none, &callError{function, ret, ret.Error()}
	}
	return value, nil
}
