// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/shoenig/test/must"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want error
	}{
		{errors.New("Error response from daemon: Unknown runtime specified nvidia"), ErrRuntimeMissing},
		{errors.New("unknown or invalid runtime name: nvidia"), ErrRuntimeMissing},
		{errors.New(`could not select device driver "nvidia" with capabilities: [[gpu]].`), ErrRuntimeMissing},
		{errors.New(`could not select device driver "" with capabilities: [[gpu]]`), ErrRuntimeMissing},
		{errors.New("unresolvable CDI devices nvidia.com/gpu=GPU-1"), ErrDeviceMissing},
		{fmt.Errorf("No such image: x:1: %w", cerrdefs.ErrNotFound), ErrImage},
		{fmt.Errorf("No such container: x: %w", cerrdefs.ErrNotFound), ErrNotFound},
		{fmt.Errorf("network nonet not found: %w", cerrdefs.ErrNotFound), nil},
		{fmt.Errorf("plugin \"pxd\" not found: %w", cerrdefs.ErrNotFound), nil},
		{errors.New("it says: no such container"), nil},
		{errors.New("VolumeDriver.Mount: volume is attached on another node"), ErrVolumeInUse},
		{errors.New("OCI runtime create failed: container with id exists: 0123: unknown"), ErrLeftover},
		{errors.New("configured logging driver does not support reading"), ErrLogsUnreadable},
		{fmt.Errorf("Container x is not running: %w", cerrdefs.ErrConflict), ErrNotRunning},
		{fmt.Errorf("error during connect: %w", io.EOF), ErrUnavailable},
		{fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), ErrUnavailable},
		{fmt.Errorf("read: %w", syscall.ECONNRESET), ErrUnavailable},
		{fmt.Errorf("dial: %w", context.DeadlineExceeded), nil},
		{context.Canceled, nil},
		{fmt.Errorf("invalid mount: %w", cerrdefs.ErrInvalidArgument), nil},
	} {
		must.True(t, sentinel(tc.err) == tc.want, must.Sprint(tc.err))
		if tc.want != nil {
			must.ErrorIs(t, wrap(tc.err, "doing"), tc.want)
		}
		must.ErrorIs(t, wrap(tc.err, "doing"), tc.err)
	}
	must.NoError(t, wrap(nil, "doing"))
}

func TestShort(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("0123456789abcdef", 4)
	must.Eq(t, "0123456789ab", short(id))
	must.Eq(t, "x"+id[1:], short("x"+id[1:]))
	must.Eq(t, "app", short("app"))
}

func TestWrapNamesEachSentinelOnce(t *testing.T) {
	t.Parallel()
	inner := wrap(errors.New("container is not running"), "inner")
	must.Eq(t, "outer: "+inner.Error(), wrap(inner, "outer").Error())
}

func TestPassing(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{io.EOF, true},
		{cerrdefs.ErrInternal, true},
		{fmt.Errorf("unknown runtime specified x: %w", cerrdefs.ErrInternal), false},
		{cerrdefs.ErrConflict, false},
		{cerrdefs.ErrInvalidArgument, false},
		{context.Canceled, false},
	} {
		must.Eq(t, tc.want, passing(tc.err), must.Sprint(tc.err))
	}
}

func TestRecoverable(t *testing.T) {
	t.Parallel()
	must.True(t, Recoverable(fmt.Errorf("x: %w", ErrUnavailable)))
	must.True(t, Recoverable(fmt.Errorf("x: %w", ErrImage)))
	must.True(t, Recoverable(fmt.Errorf("x: %w", ErrVolumeInUse)))
	must.True(t, Recoverable(fmt.Errorf("x: %w", ErrLeftover)))
	must.True(t, Recoverable(fmt.Errorf("x: %w", ErrNameTaken)))
	must.False(t, Recoverable(ErrRuntimeMissing))
	must.False(t, Recoverable(nil))
}

// What is wrong with the node is said with what to do about it, and is not taken for the
// fault of a job that happens to use the same words.
func TestNotReadySaysWhatToDo(t *testing.T) {
	t.Parallel()
	for text, remedy := range map[string]string{
		"nvidia-container-cli.real: insufficient privileges to read device list from NVIDIA_VISIBLE_DEVICES envvar": "accept-nvidia-visible-devices-envvar-when-unprivileged",
		`error gathering device information while adding custom device "/dev/nvidia-uvm": no such file`:             "nvidia-modprobe -u",
		"nvidia-container-cli: initialization error: nvml error: driver/library version mismatch":                   "reboot the node",
		"nvidia-container-cli: initialization error: driver not loaded":                                             "nvidia-smi",
		"CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=0":                                    "nvidia-ctk cdi list",
		"driver failed programming external connectivity: port is already allocated":                                "",
		`exec: "/dev/nvidia-uvm": executable file not found in $PATH`:                                               "",
		"unable to find user nvidia-uvm: no matching entries in passwd file":                                        "",
	} {
		err := fmt.Errorf("%w: %s", ErrStart, text)
		got := NotReady(err)
		if remedy == "" {
			must.Eq(t, "", got, must.Sprint(text))
			continue
		}
		must.StrContains(t, got, remedy)
	}
	must.Eq(t, "", NotReady(errors.New("driver not loaded")), must.Sprint("not of a start"))
	must.Eq(t, "", NotReady(nil))
}
