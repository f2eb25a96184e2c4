// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/hashicorp/nomad/plugins/drivers"
)

// attack is one row: what a job author tries, and what must hold on the host after it.
type attack struct {
	name  string
	tries string
	looks string // what is checked, besides the checks after every row

	operator string                // keys of the plugin's configuration, beyond the defaults
	needs    func(s *scene) string // why the row cannot run here; empty if it can
	slow     bool                  // not in the short form

	job    job
	before func(s *scene, in *intruder) error // on the host, as an artifact or a client does
	act    func(s *scene, in *intruder) error // instead of one or two plain starts
	look   look
}

// job is what a job author writes. Texts may have placeholders: see scene.expand.
type job struct {
	task   string // name of the task; app if empty
	config string // of the config block, besides image and command
	script string // runs in the container, which then sleeps until the test has checked it
	env    map[string]string
	as     func(task *drivers.TaskConfig) // changes Nomad's data of the job; nil: the hostile job

	// An earlier start of the same task, which has ended before the other begins.
	firstConfig string
	first       string

	slice bool // of the GPU on which the victim has a slice
	group bool // a group network
	dns   bool // a dns block
	logs  bool // Nomad's log collector reads what the task prints
}

// look returns what is wrong on the host.
type look func(s *scene, in *intruder) error

func both(looks ...look) look {
	return func(s *scene, in *intruder) error {
		var found []error
		for _, l := range looks {
			if l != nil {
				found = append(found, l(s, in))
			}
		}
		return errors.Join(found...)
	}
}

// rows are all attacks, by subject. Attacks on GPUs are repeated for each way by which the engine can give GPUs.
func rows(ways ...string) []attack {
	all := slices.Concat(
		rowsOfMounts(), rowsOfFiles(), rowsOfLogs(), rowsOfProfiles(), rowsOfImages(), rowsOfDevices(),
		rowsOfSecurity(), rowsOfObservers(), rowsOfNames(), rowsOfClaims(), rowsOfNetworks(),
	)
	for _, way := range ways {
		for _, a := range rowsOfGPUs() {
			a.name += "-by-" + way
			a.operator = fmt.Sprintf("gpu_injection = %q", way)
			all = append(all, a)
		}
	}
	return all
}

func TestAttacks(t *testing.T) {
	stage := newStage(t)
	var verdicts []string
	for _, a := range rows(stage.ways()...) {
		t.Run(a.name, func(t *testing.T) {
			verdict := "not run" // stays so if the suite itself fails
			defer func() { verdicts = append(verdicts, a.row(verdict)) }()
			if reason := a.skip(stage); reason != "" {
				verdict = "skipped: " + reason
				return
			}
			verdict = "held"
			if err := stage.play(t, a); err != nil {
				verdict = fmt.Sprintf("BREACHED: %.200s", strings.ReplaceAll(err.Error(), "\n", "; "))
				t.Errorf("%s: %s\n%v", a.name, a.tries, err)
			}
		})
	}
	printTable(verdicts)
}

func (a attack) skip(stage *stage) string {
	if a.slow && testing.Short() {
		return "not in the short form"
	}
	if a.needs == nil {
		return ""
	}
	return a.needs(stage.scene(a.operator))
}

func (a attack) row(verdict string) string {
	looks := a.looks
	if looks == "" {
		looks = "what every row checks"
	}
	return strings.Join([]string{a.name, a.tries, looks, strings.ReplaceAll(verdict, "\t", " ")}, "\t")
}

func printTable(verdicts []string) {
	fmt.Printf("\nAfter every row: the disk, the files of /etc, Docker's images, and the other job's container, files, GPUs and claim are\n" +
		"as before, no secret was read, and no container, claim or mount of the attacker's is left.\n\n")
	table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ROW\tTHE JOB TRIES\tLOOKED AT AFTERWARDS\tVERDICT")
	counts := map[string]int{}
	for _, verdict := range verdicts {
		fmt.Fprintln(table, verdict)
		word, _, _ := strings.Cut(verdict[strings.LastIndex(verdict, "\t")+1:], ":")
		counts[word]++
	}
	_ = table.Flush()
	fmt.Printf("\n%d rows: %d held, %d breached, %d skipped, %d not run\n",
		len(verdicts), counts["held"], counts["BREACHED"], counts["skipped"], counts["not run"])
}
