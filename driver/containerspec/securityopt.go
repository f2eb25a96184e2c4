// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// securityOptions are the job's security_opt, each written as key=value so that Docker
// reads exactly what was checked here.
//
// Without allow_privileged a job may use the keys that choose another seccomp, AppArmor
// or SELinux confinement, as with Nomad's driver. None of them moves a wall: devices,
// capabilities, namespaces and the read-only parts of /proc and /sys stay as they are.
// Options that do move one, and those that Docker may learn in a later version, need
// allow_privileged.
func (b *builder) securityOptions() error {
	for _, option := range b.Job.SecurityOpt {
		key, value := splitSecurityOption(option)
		if err := b.checkSecurityOption(key, value); err != nil {
			return fmt.Errorf("config.security_opt %q: %w", option, err)
		}
		switch {
		case key == "systempaths":
			b.host.MaskedPaths, b.host.ReadonlyPaths = []string{}, []string{}
			continue
		case key == "no-new-privileges" && isTrue(value):
			value = ""
		case key == "seccomp" && !slices.Contains([]string{"unconfined", "builtin"}, value):
			profile, err := b.seccompProfile(value)
			if err != nil {
				return fmt.Errorf("config.security_opt %q: %w", option, err)
			}
			value = profile
		}
		if value != "" {
			key += "=" + value
		}
		b.host.SecurityOpt = append(b.host.SecurityOpt, key)
	}
	return nil
}

// splitSecurityOption reads an option as Docker does: "key=value", else the older
// "key:value", else a bare key. A bare "disable" is an old name of "label=disable".
func splitSecurityOption(option string) (key, value string) {
	if option == "disable" {
		return "label", "disable"
	}
	key, value, found := strings.Cut(option, "=")
	if !found {
		key, value, _ = strings.Cut(option, ":")
	}
	return key, value
}

const needsPrivileged = "this client allows it only with allow_privileged"

func (b *builder) checkSecurityOption(key, value string) error {
	switch {
	case slices.Contains([]string{"seccomp", "apparmor", "label"}, key):
		if value == "" {
			return fmt.Errorf("%s has no value: write %s=VALUE", key, key)
		}
	case key == "no-new-privileges" && isTrue(value):
	case key == "no-new-privileges" && !isFalse(value):
		return fmt.Errorf("%q is neither true nor false", value)
	case key == "systempaths" && value != "unconfined":
		return fmt.Errorf(`the only value of systempaths is "unconfined"`)
	case !b.Settings.AllowPrivileged:
		return fmt.Errorf("it can open the host to the container, or is unknown to this driver: %s; "+
			"without it, jobs may use seccomp, apparmor, label and no-new-privileges", needsPrivileged)
	}
	return nil
}

// isTrue reads a switch as Docker does; a bare key switches on.
func isTrue(value string) bool {
	on, err := strconv.ParseBool(value)
	return value == "" || err == nil && on
}

func isFalse(value string) bool {
	on, err := strconv.ParseBool(value)
	return err == nil && !on
}

// mostOfProfile is what a seccomp profile may take, in bytes. Docker's own has 20 KB.
const mostOfProfile = 1 << 20

// seccompProfile returns the content of a profile, since Docker's API takes the profile
// itself. The file is read with this plugin's rights, hence only from where the task may
// mount from.
//
// A profile with a listener has runc connect to a socket of the host as root, which is
// for operators to allow.
func (b *builder) seccompProfile(path string) (string, error) {
	profile, err := b.paths().read(path, mostOfProfile)
	if err != nil {
		return "", err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, profile); err != nil {
		return "", fmt.Errorf("the profile is not JSON: %w", err)
	}
	var known struct{ ListenerPath string }
	if err := json.Unmarshal(profile, &known); err != nil {
		return "", fmt.Errorf("the profile is not valid: %w", err)
	}
	if known.ListenerPath != "" && !b.Settings.AllowPrivileged {
		return "", fmt.Errorf("the profile has a listenerPath: %s", needsPrivileged)
	}
	return compact.String(), nil
}
