// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

//go:build services

package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/allocator"
)

// scene is a host on which another job already runs. The next attack uses the same scene,
// unless an attack has changed it: then it is discarded.
type scene struct {
	t        *testing.T
	stage    *stage
	operator string // plugin configuration
	dir      string
	etc      string // instead of the real /etc
	stateDir string
	disk     *disk // nil without loop devices
	plugin   *plugin
	victim   *victim

	etcBefore    tree
	mountsBefore []string               // of the driver
	openStore    func() allocator.Store // nil: the table is a file
}

// secret is in every file of the host that no task may read.
const secret = "SECRET-OF-THE-HOST"

func (s *stage) scene(operator string) *scene {
	if found := s.scenes[operator]; found != nil {
		return found
	}
	made := s.newScene(operator, nil)
	s.scenes[operator] = made
	return made
}

func (s *stage) newScene(operator string, store func() allocator.Store) *scene {
	t := s.t
	t.Helper()
	dir, err := os.MkdirTemp(s.run, "scene-")
	must.NoError(t, err)
	must.NoError(t, os.Chmod(dir, 0o755))
	c := &scene{
		t: t, stage: s, operator: operator, dir: dir, etc: filepath.Join(dir, "etc"), stateDir: filepath.Join(dir, "state"), openStore: store,
	}
	for name, text := range map[string]string{
		"resolv.conf": "nameserver 192.0.2.1\n", "hosts": "127.0.0.1 localhost\n", "shadow": "root:" + secret + ":\n",
		"cron.d/daily": "# " + secret + "\n", "nomad.d/agent.hcl": "# " + secret + "\n", "profile.json": `{"defaultAction":"SCMP_ACT_ALLOW","x":"` + secret + `"}`,
		"empty.d/.keep": "",
	} {
		path := filepath.Join(c.etc, name)
		must.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	c.etcBefore, err = treeOf(c.etc)
	must.NoError(t, err)
	if c.disk, err = newDisk(filepath.Join(dir, "disk.img")); err != nil {
		t.Log(err)
	}
	must.NoError(t, os.Mkdir(c.stateDir, 0o700))
	c.plugin = c.bootPlugin()
	must.NoError(t, c.startVictim())
	_, c.mountsBefore, err = c.mounts()
	must.NoError(t, err)
	return c
}

// mounts returns the mounts in the host's directories. The driver's own mounts are separate:
// it makes them for the existing containers.
func (s *scene) mounts() (others, drivers []string, err error) {
	text, err := os.ReadFile("/proc/self/mounts")
	staging := filepath.Join(s.stateDir, "staging")
	for line := range strings.Lines(string(text)) {
		target := strings.Fields(line)[1]
		switch {
		case strings.HasPrefix(target, staging+"/"):
			drivers = append(drivers, target)
		case strings.HasPrefix(target, s.dir+"/") && target != staging:
			others = append(others, target)
		}
	}
	return others, drivers, err
}

// noMountLeft returns the driver's mounts that did not exist before the attack.
func (s *scene) noMountLeft() error {
	_, mounts, err := s.mounts()
	if added := slices.DeleteFunc(mounts, func(m string) bool { return slices.Contains(s.mountsBefore, m) }); len(added) > 0 {
		return fmt.Errorf("mounts of the attacker's are left: %q", added)
	}
	return err
}

// intact returns what has changed on the host.
func (s *scene) intact() error {
	found := []error{s.etcBefore.changed(s.etc), s.stage.checkImages(), s.checkVictim()}
	if s.disk != nil {
		found = append(found, s.disk.changed())
	}
	if mounts, _, err := s.mounts(); err != nil {
		found = append(found, err)
	} else if len(mounts) > 0 {
		found = append(found, fmt.Errorf("mounted in the host's directories: %q", mounts))
	}
	return errors.Join(found...)
}

// claimOf returns the units that an allocation holds; empty if none.
func (s *scene) claimOf(alloc string) (string, error) {
	snapshot, err := allocator.NewTable(s.store()).Snapshot(s.stage.ctx)
	if err != nil {
		return "", err
	}
	var held []string
	for _, g := range snapshot.GPUs {
		for _, claim := range g.Claims() {
			if claim.Alloc == alloc {
				held = append(held, fmt.Sprintf("units %s of %s, %s by %.12s", claim.Units, g.ID, claim.State, claim.Container))
			}
		}
	}
	return strings.Join(held, "; "), nil
}

// expand fills in what a job author knows or can find out.
func (s *scene) expand(in *intruder, text string) string {
	pairs := []string{
		"{etc}", s.etc, "{run}", s.stage.run, "{alloc}", in.alloc.dir, "{docker}", s.stage.dockerRoot, "{pause}", s.stage.pauseImage,
		"{image}", intruderImage, "{victim}", s.victim.container.ID, "{victim-name}", strings.TrimPrefix(s.victim.container.Name, "/"),
		"{victim-image}", victimImage, "{victim-alloc}", s.victim.alloc.id, "{victim-attempt}", s.victim.task.ID,
		"{gpu1-node}", fmt.Sprintf("c %d %d", s.stage.gpus[1].node.major, s.stage.gpus[1].node.minor), "{gpu0}", string(s.stage.gpus[0].id), "{gpu1}", string(s.stage.gpus[1].id),
	}
	if s.disk != nil {
		pairs = append(pairs, "{disk}", s.disk.path, "{disk-node}", fmt.Sprintf("b %d %d", s.disk.major, s.disk.minor),
			"{disk-number}", fmt.Sprintf("%d:%d", s.disk.major, s.disk.minor))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// close ends the scene's tasks and plugin.
func (s *scene) close() {
	if s.victim != nil {
		_ = within(func() error { return s.plugin.DestroyTask(s.victim.task.ID, true) })
		s.stage.remove(s.victim.container.ID)
	}
	if err := s.plugin.end(); err != nil {
		s.t.Logf("the plugin of a breached scene is left behind: %v", err)
	}
	if s.disk != nil {
		s.disk.detach()
	}
}

// play runs one row and returns what it broke.
func (s *stage) play(t *testing.T, a attack) error {
	scene := s.scene(a.operator)
	err := scene.play(t, a)
	if err == nil {
		return nil
	}
	log := scene.plugin.log.String()
	t.Logf("the driver's log ends with:\n%s", log[max(0, len(log)-2000):])
	scene.close()
	delete(s.scenes, a.operator)
	s.restoreImages()
	return err
}

func (s *scene) play(t *testing.T, a attack) error {
	before, err := s.stage.containers()
	if err != nil {
		return err
	}
	s.stage.relay.forget()
	in, err := s.newIntruder(t, a)
	if err != nil {
		return err
	}
	acted := in.act()
	var looked error
	if a.look != nil {
		looked = a.look(s, in)
	}
	found := []error{acted, looked, in.readSecret(), s.intact()}
	found = append(found, in.evict())
	after, err := s.stage.containers()
	if err == nil && !slices.Equal(before, after) {
		err = fmt.Errorf("containers of the attacker's are left: %d and were %d", len(after), len(before))
		for _, id := range after {
			if !slices.Contains(before, id) {
				s.stage.remove(id)
			}
		}
	}
	claim, claimErr := s.claimOf(in.alloc.id)
	if claim != "" {
		claimErr = fmt.Errorf("the attacker's claim is left: %s", claim)
	}
	if errors.Join(found...) == nil { // otherwise it was already reported
		found = append(found, s.intact(), s.noMountLeft())
	}
	return errors.Join(append(found, err, claimErr)...)
}

// rebootPlugin starts another process of the driver, as after an upgrade. It recovers the
// victim, and not the attacker's tasks.
func (s *scene) rebootPlugin() error {
	handle, err := s.victimHandle()
	if err != nil {
		return err
	}
	if err := s.plugin.end(); err != nil {
		return err
	}
	s.plugin = s.bootPlugin()
	return within(func() error { return s.plugin.RecoverTask(handle) })
}
