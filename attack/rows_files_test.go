// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// rowsOfFiles attack files that the driver writes for a task.
func rowsOfFiles() []attack {
	const parent = `volumes = ["..:/a"]`
	const own = `volumes = [".:/t"]`
	return []attack{
		{
			name: "resolv-conf", tries: "to have the driver write resolv.conf through a link in place of the task's directory",
			job: job{firstConfig: parent, first: `mv /a/app /a/gone && ln -s {etc} /a/app`, script: `true`, dns: true},
		},
		{
			name: "resolv-conf-of-another", tries: "the same, with a link to the other job's files in Docker's directory",
			job: job{firstConfig: parent, first: `mv /a/app /a/gone && ln -s {docker}/containers/{victim} /a/app`, script: `true`, dns: true},
		},
		{
			name: "resolv-conf-by-sibling", tries: "the same, from another task's directory",
			job: job{firstConfig: `volumes = ["../other/..:/a"]`, first: `mv /a/app /a/gone && ln -s {etc} /a/app`, script: `true`, dns: true},
		},
		{
			name: "resolv-conf-link", tries: "to have resolv.conf written through a link of that name",
			job: job{firstConfig: own, first: `rm -f /t/resolv.conf; ln -s {etc}/resolv.conf /t/resolv.conf`, script: `echo ` + written + ` >>/etc/resolv.conf`, dns: true},
		},
		{
			name: "resolv-conf-directory", tries: "to have the driver remove what lies behind a link in place of resolv.conf",
			job: job{firstConfig: own, first: `rm -f /t/resolv.conf; mkdir /t/resolv.conf; ln -s {etc}/cron.d /t/resolv.conf/d`, script: `true`, dns: true},
		},
		{
			name: "hosts-link", tries: "to have the group's hosts file written through a link", slow: true,
			job: job{firstConfig: parent, first: `rm -f /a/hosts; ln -s {etc}/hosts /a/hosts`, config: `extra_hosts = ["evil:6.6.6.6"]`,
				script: `echo ` + written + ` >>/etc/hosts`, group: true},
		},
		{
			name: "hosts-disk", tries: "to have the group's hosts file written to a disk", needs: needsDisk, slow: true,
			job: job{firstConfig: parent, first: `rm -f /a/hosts; mknod /a/hosts {disk-node}`, config: `extra_hosts = ["evil:6.6.6.6"]`,
				script: `echo ` + written + ` >/etc/hosts`, group: true},
		},
		{
			name: "hosts-pipe", tries: "to hold the driver up by a pipe in place of the group's hosts file", slow: true,
			job: job{firstConfig: parent, first: `rm -f /a/hosts; mkfifo /a/hosts`, config: `extra_hosts = ["evil:6.6.6.6"]`, script: `true`, group: true},
		},
		{
			name: "local-link", tries: "to have /local mounted from /etc by a link in its place",
			job:  job{firstConfig: own, first: `mv /t/local /t/x; ln -s {etc} /t/local`, script: `cat /local/shadow; echo ` + written + ` >/local/new`},
			look: notMounted("{etc}", "/local"),
		},
		{
			name: "secrets-link", tries: "to have /secrets mounted from /etc by a link in its place",
			job:  job{firstConfig: own, first: `mv /t/secrets /t/x; ln -s {etc} /t/secrets`, script: `cat /secrets/shadow; echo ` + written + ` >/secrets/new`},
			look: notMounted("{etc}", "/secrets"),
		},
		{
			name: "alloc-link", tries: "to have /alloc mounted from /etc by a link in its place",
			job:  job{firstConfig: parent, first: `mv /a/alloc /a/x; ln -s {etc} /a/alloc`, script: `cat /alloc/shadow; echo ` + written + ` >/alloc/new`},
			look: notMounted("{etc}", "/alloc"),
		},
		{
			name: "recovery-in-etc", tries: "to have the driver make files in /etc when it recovers the task after a restart",
			job: job{config: parent, script: `mv /a/app /a/gone && ln -s {etc} /a/app`, logs: true}, act: recoverTask,
		},
		{
			name: "recovery-in-nomad.d", tries: "the same in a directory of which an agent reads every *.json",
			job: job{config: parent, script: `mv /a/app /a/gone && ln -s {etc}/nomad.d /a/app`, logs: true}, act: recoverTask,
		},
	}
}

// recoverTask restarts the driver under the task.
func recoverTask(s *scene, in *intruder) error {
	if err := in.start(in.job.config, in.job.script); err != nil || in.refused != nil {
		return err
	}
	if err := s.rebootPlugin(); err != nil {
		return err
	}
	handle := in.handle
	if err := within(func() error { return s.plugin.RecoverTask(handle) }); errors.Is(err, errHangs) {
		return err
	}
	// The driver does the work for a recovered task concurrently with the call.
	wait := time.Now().Add(3 * time.Second)
	for time.Now().Before(wait) && s.etcBefore.changed(s.etc) == nil {
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// logged checks that Nomad has the task's output: nothing blocks its log.
func logged(line string) look {
	return func(_ *scene, in *intruder) error {
		if !in.runs() {
			return nil
		}
		there := eventually(func() bool {
			text, _ := os.ReadFile(filepath.Join(in.alloc.dir, "alloc", "logs", in.job.task+".stdout.0"))
			return strings.Contains(string(text), line)
		})
		if !there {
			return errors.New("the task's output does not reach Nomad any more")
		}
		return nil
	}
}
