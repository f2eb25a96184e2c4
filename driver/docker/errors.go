// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/client"
)

var (
	// ErrNotFound: the daemon answers, and it has no such container.
	ErrNotFound = errors.New("no such container")
	// ErrUnavailable: the daemon cannot be reached or broke off. It says nothing about any container.
	ErrUnavailable = errors.New("docker daemon is not reachable")
	// ErrNoAnswer: the daemon accepts connections and does not answer. It matches ErrUnavailable as well, and what was asked for may
	// still be done at any time.
	ErrNoAnswer = errors.New("docker daemon does not answer")
	// ErrVersion: the daemon and this client have no API version in common. It matches ErrUnavailable as well.
	ErrVersion = errors.New("docker and this plugin have no API version in common " +
		"(update the older of the two, or lower min-api-version in Docker's daemon.json)")
	// ErrRuntimeMissing: the container asks for a runtime (or a GPU driver) that the daemon does not have.
	ErrRuntimeMissing = errors.New("container runtime is not known to docker " +
		"(install the NVIDIA Container Toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart docker)")
	// ErrDeviceMissing: the runtime is there, but it cannot resolve a device that the container was given.
	ErrDeviceMissing = errors.New("device is not known to the container runtime " +
		"(regenerate its CDI specification with `nvidia-ctk cdi generate`)")
	// ErrStart: the daemon failed to start the container, and it is not known to be a fault of the job.
	ErrStart = errors.New("docker failed to start the container, which may pass")
	// ErrImageName: the job names no image, or what it names cannot be one.
	ErrImageName = errors.New("not the name of an image")
	// ErrImage: the image is not here and cannot be pulled: no registry, no such image there, no rights, timeout.
	ErrImage = errors.New("image is unavailable")
	// ErrVolumeInUse: a volume is still attached on another node.
	ErrVolumeInUse = errors.New("volume is attached on another node")
	// ErrNameTaken: other containers of that name come up again and again, or the daemon does not release the name.
	ErrNameTaken = errors.New("the name was taken")
	// ErrLeftover: the runtime still has an earlier container of this ID, as after a crash of the daemon. Another container helps.
	ErrLeftover = errors.New("the runtime has not released an earlier container of this ID")
	// ErrNotRunning: the container is there, but it does not run.
	ErrNotRunning = errors.New("container is not running")
	// ErrLogsUnreadable: the container's log driver keeps nothing that could be read back.
	ErrLogsUnreadable = errors.New("log driver does not support reading")
	// ErrStuck: the daemon could not end or remove the container in time.
	ErrStuck = errors.New("container does not go away (a process stuck in a device driver cannot be killed; " +
		"look for state D on the host)")
)

// wrap says what failed and, where the daemon's answer is a known one, adds its sentinel. Nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if is := sentinel(err); is != nil && !errors.Is(err, is) {
		return fmt.Errorf("%s: %w: %w", what, is, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// short is a container's ID as people know it. Names stay as they are.
func short(id string) string {
	const whole, enough = 64, 12
	if len(id) == whole && !strings.ContainsFunc(id, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }) {
		return id[:enough]
	}
	return id
}

// sentinel finds the sentinel of an answer of the daemon, or of its silence. Nil: none.
func sentinel(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil // the caller's doing, not the daemon's
	}
	if is := sentinelOfText(err.Error()); is != nil {
		return is
	}
	switch {
	case noContainer(err):
		return ErrNotFound
	case unreachable(err):
		return ErrUnavailable
	case cerrdefs.IsNotImplemented(err):
		return ErrLogsUnreadable // the one call of ours that answers so
	}
	return nil
}

// sentinelOfText reads what the daemon tells only in words, for the status codes do not keep these cases apart.
func sentinelOfText(text string) error {
	text = strings.ToLower(text)
	for _, known := range []struct {
		words string
		is    error
	}{
		{"unknown runtime specified", ErrRuntimeMissing},
		{"unknown or invalid runtime name", ErrRuntimeMissing},
		{"could not select device driver", ErrRuntimeMissing},
		{"unresolvable cdi devices", ErrDeviceMissing},
		{"no such image", ErrImage},
		{"attached on another node", ErrVolumeInUse},
		{"does not support reading", ErrLogsUnreadable},
		{"container with id exists", ErrLeftover},
		{"container with given id already exists", ErrLeftover},
		{"is not running", ErrNotRunning},
	} {
		if strings.Contains(text, known.words) {
			return known.is
		}
	}
	return nil
}

// noContainer reports whether the daemon has no such container. Its status alone may speak of a network, a volume or a plugin.
func noContainer(err error) bool {
	return cerrdefs.IsNotFound(err) && strings.Contains(strings.ToLower(err.Error()), "no such container")
}

func unreachable(err error) bool {
	var netErr net.Error
	return errors.Is(err, ErrUnavailable) || client.IsErrConnectionFailed(err) || cerrdefs.IsUnavailable(err) || errors.As(err, &netErr) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// passing reports whether the same call may succeed in a moment. An internal error (500) without a known cause counts: the
// daemon also answers so while it starts or stops.
func passing(err error) bool {
	switch is := sentinel(err); {
	case errors.Is(is, ErrUnavailable):
		return !errors.Is(err, ErrNoAnswer) && !errors.Is(err, ErrVersion) // the call has had its time, or would be refused again
	case is != nil:
		return false
	}
	return cerrdefs.IsInternal(err)
}

// passingStart is passing for the start of a container. Unlike elsewhere, an internal error counts whatever its cause, a device
// whose CDI specification is just being written among them, unless it is the job's fault or calls for another container.
func passingStart(err error) bool {
	if err != nil && notReady(err) != "" {
		return true
	}
	if err == nil || !cerrdefs.IsInternal(err) {
		return err != nil && passing(err)
	}
	return !errors.Is(sentinel(err), ErrLeftover) && !isJobsFault(err)
}

// notReady says what to do if a start failed because the node's GPU driver or container toolkit is not ready, as after a boot or
// an upgrade. Whatever status the daemon chooses for it, it may pass, and is never the job's fault. Empty: it is something else.
func notReady(err error) string {
	text := strings.ToLower(err.Error())
	for _, known := range []struct {
		words  []string
		remedy string
	}{
		{[]string{"nvidia-uvm"}, "load the kernel module nvidia-uvm: `nvidia-modprobe -u -c 0`"},
		{[]string{"version mismatch"}, "the NVIDIA driver was upgraded and the old module is still loaded: reboot the node"},
		{[]string{"insufficient privileges to read device list"}, "the NVIDIA runtime takes no GPUs by environment: set " +
			"accept-nvidia-visible-devices-envvar-when-unprivileged = true in /etc/nvidia-container-runtime/config.toml, " +
			`or gpu_injection = "cdi" in this driver's config`},
		{[]string{`error mounting "/usr/lib`, `error mounting "/lib/firmware/nvidia`, `error mounting "/run/nvidia-`}, "the CDI specification is of another NVIDIA driver: generate it again by `nvidia-ctk cdi generate`"},
		{[]string{"unresolvable cdi devices"}, "see whether `nvidia-ctk cdi list` has the GPU"},
		{[]string{"driver not loaded", "nvidia-smi has failed", "/dev/nvidia"}, "see whether `nvidia-smi` works on the node"},
	} {
		if slices.ContainsFunc(known.words, func(words string) bool { return strings.Contains(text, words) }) {
			return known.remedy
		}
	}
	return ""
}

// NotReady says what to do if a start failed because the node's GPU driver or container toolkit is not ready; empty if it failed
// for something else, or for what the job asks for.
func NotReady(err error) (remedy string) {
	if !errors.Is(err, ErrStart) && !errors.Is(err, ErrDeviceMissing) || isJobsFault(err) {
		return ""
	}
	return notReady(err)
}

// isJobsFault reports whether the daemon failed to start a container for what the job asks for: it would do so again. What it
// says of a hook is not the job's: those come from the runtime's configuration.
func isJobsFault(err error) bool {
	text := strings.ToLower(err.Error())
	return !strings.Contains(text, "hook") && slices.ContainsFunc([]string{
		"executable file not found", "exec format error", "unable to find user", "unable to find group", "chdir to cwd", "working directory",
		"bind source path", "mount source path", "error mounting", "invalid mount", "not a directory", "/proc/sys/", "sysctl",
		"rlimit", "ulimit", "oom_score_adj", "seccomp", "apparmor", "requested cpus", "cpuset",
	}, func(words string) bool { return strings.Contains(text, words) })
}

// Recoverable reports whether a later retry may help without any change of the job: the daemon was unavailable, an image could
// not be pulled, a volume was still attached elsewhere, the leftovers of an earlier container are still being cleared, the start failed
// for a reason that is not known to be the job's.
func Recoverable(err error) bool {
	return slices.ContainsFunc([]error{ErrUnavailable, ErrImage, ErrVolumeInUse, ErrNameTaken, ErrLeftover, ErrStart},
		func(is error) bool { return errors.Is(err, is) })
}
