// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// rowsOfProfiles attack files that the driver reads for a task.
func rowsOfProfiles() []attack {
	const profile = `security_opt = ["seccomp=local/p.json"]`
	return []attack{
		{
			name: "profile-pipe", tries: "to hold the driver up for ever by a pipe in place of a seccomp profile", looks: "whether the start returns",
			job: job{first: `mkfifo /local/p.json`, config: profile, script: `true`},
		},
		{
			name: "profile-disk", tries: "to read a disk of the host as a seccomp profile", needs: needsDisk, looks: "the container's settings",
			job: job{first: `mknod /local/p.json {disk-node}`, config: profile, script: `true`}, look: never(secret),
		},
		{
			name: "profile-huge", tries: "to fill the host's memory by a seccomp profile of 256 MiB", looks: "the driver's memory",
			job: job{first: `dd if=/dev/zero of=/local/p.json bs=1 count=1 seek=268435455`, config: profile, script: `true`}, act: frugal,
		},
		{
			name: "profile-link", tries: "to read a file of /etc as a seccomp profile, by a link",
			job: job{first: `ln -s {etc}/profile.json /local/p.json`, config: profile, script: `true`}, look: never(secret),
		},
		{
			name: "profile-absolute", tries: "the same, by its path",
			job: job{config: `security_opt = ["seccomp={etc}/profile.json"]`, script: `true`}, look: never(secret),
		},
		{
			name: "profile-climb", tries: "the same, by ../../..",
			job: job{config: `security_opt = ["seccomp=../../../etc/profile.json"]`, script: `true`}, look: never(secret),
		},
		{
			name: "profile-colon", tries: "the same, in Docker's old spelling seccomp:path",
			job: job{config: `security_opt = ["seccomp:{etc}/profile.json"]`, script: `true`}, look: never(secret),
		},
		{
			name: "profile-in-ancestor", tries: "the same, by a link in place of the task's directory",
			job:  job{firstConfig: `volumes = ["..:/a"]`, first: `mv /a/app /a/gone; ln -s {etc} /a/app`, config: `security_opt = ["seccomp=profile.json"]`, script: `true`},
			look: never(secret),
		},
	}
}

// frugal starts the task twice and checks the driver's memory for the second start.
func frugal(s *scene, in *intruder) error {
	if err := in.start("", in.job.first); err != nil {
		return err
	}
	if err := in.destroy(); err != nil {
		return err
	}
	if info, err := os.Stat(filepath.Join(in.alloc.dir, in.job.task, "local", "p.json")); err != nil || info.Size() < 256<<20 {
		return fmt.Errorf("the profile was not made: %v", err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := in.start(in.job.config, in.job.script); err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
		return fmt.Errorf("the driver took %d MiB of memory to read the profile", took)
	}
	return nil
}
