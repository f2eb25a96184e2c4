// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

import (
	"errors"
	"slices"
	"strconv"
)

// Request is what one instance of a task group needs of one node.
type Request struct {
	CPU       int // in the unit of Node.CPU
	MemoryMiB int // host memory
	Asks      []Ask

	// Fits returns why a node must not be used, "" if it may; nil allows all. It is for
	// conditions that a Node does not have, such as a job's constraints.
	Fits func(*Node) string
}

// Ask asks for memory of one GPU: exactly one of Units, MiB and Whole is set.
type Ask struct {
	Units int
	MiB   int  // rounded up to units of the GPU
	Whole bool // all units of an unused GPU

	Models []string // of these models only; none allows all

	// Apart is a name: asks with the same name use different GPUs. It is a task's name if
	// its asks must not share a GPU. Asks without a name may use any GPU.
	Apart string

	// Fits reports whether a GPU may be used; nil allows all. Scores of requests with such
	// an ask are not cached: each decision scores every node.
	Fits func(*GPU) bool
}

// Decision is a place for one request.
type Decision struct {
	Node      string // ID
	CPU       int
	MemoryMiB int
	Slices    []Slice // one for each ask, in the request's order
	Score     int64   // larger is better; not comparable between requests
}

// Slice is what one ask gets.
type Slice struct {
	GPU   string // ID
	Units int
}

var (
	// ErrNoRoom is returned when the request fits on no node now.
	ErrNoRoom = errors.New("the request fits on no node")

	// ErrBadRequest is returned when the request is invalid for every cluster.
	ErrBadRequest = errors.New("invalid request")
)

// maxAsks bounds the asks of one request.
const maxAsks = 64

// check returns an error if a request is invalid.
func (r Request) check() error {
	if r.CPU < 0 || r.MemoryMiB < 0 {
		return badRequest("CPU and memory must not be negative, got " + strconv.Itoa(r.CPU) + " and " + strconv.Itoa(r.MemoryMiB))
	}
	if len(r.Asks) > maxAsks {
		return badRequest("more than " + strconv.Itoa(maxAsks) + " asks for GPU memory")
	}
	for i, a := range r.Asks {
		if !a.sensible() {
			return badRequest("ask " + strconv.Itoa(i+1) + " must set exactly one of units, MiB and whole, and that one positive")
		}
	}
	return nil
}

func (a Ask) sensible() bool {
	ways := 0
	for _, set := range [...]bool{a.Units != 0, a.MiB != 0, a.Whole} {
		if set {
			ways++
		}
	}
	return ways == 1 && a.Units >= 0 && a.MiB >= 0
}

// cacheable reports whether appendKey identifies the request completely.
func (r Request) cacheable() bool {
	return !slices.ContainsFunc(r.Asks, func(a Ask) bool { return a.Fits != nil })
}

// appendKey appends the key of a kind of request, without Fits.
func (r Request) appendKey(key []byte) []byte {
	key = strconv.AppendInt(key, int64(r.CPU), 36)
	key = append(key, ' ')
	key = strconv.AppendInt(key, int64(r.MemoryMiB), 36)
	for _, a := range r.Asks {
		key = a.appendKey(key)
	}
	return key
}

func (a Ask) appendKey(key []byte) []byte {
	switch {
	case a.Whole:
		key = append(key, 'w')
	case a.MiB > 0:
		key = strconv.AppendInt(append(key, 'm'), int64(a.MiB), 36)
	default:
		key = strconv.AppendInt(append(key, 'u'), int64(a.Units), 36)
	}
	for _, model := range a.Models {
		key = strconv.AppendQuote(key, model)
	}
	if a.Apart != "" {
		key = strconv.AppendQuote(append(key, '/'), a.Apart)
	}
	return key
}

// badRequest is an ErrBadRequest with its reason.
type badRequest string

func (b badRequest) Error() string { return ErrBadRequest.Error() + ": " + string(b) }
func (b badRequest) Unwrap() error { return ErrBadRequest }
