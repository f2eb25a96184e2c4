package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"nomad-gpu-mem/allocator"
)

// model is what the table should hold: tasks with what they hold.
type model struct {
	table  *allocator.Table
	random *rand.Rand
	tasks  map[int]*task // by number; only those that hold something
}

type task struct {
	attempt string
	slices  map[allocator.GPUID]slice
}

type slice struct {
	units     allocator.UnitSet
	container string // "" until it runs
}

// step does one random operation on the table and the model. The error says
// where they differ.
func (m *model) step(ctx context.Context) (what string, err error) {
	number := m.random.IntN(taskCount)
	attempt := fmt.Sprintf("attempt-%d", m.random.IntN(3))
	owner, holds := owner(number), m.tasks[number]
	current := holds != nil && holds.attempt == attempt
	switch m.random.IntN(4) {
	case 0:
		what = fmt.Sprintf("release %s %s", owner, attempt)
		err = m.table.Release(ctx, owner, attempt, gpus())
		if current {
			delete(m.tasks, number)
		}
		return what, err
	case 1:
		what = fmt.Sprintf("run %s %s", owner, attempt)
		if !current {
			err = m.table.Running(ctx, owner, attempt, "container", gpus())
			return what, want(err, allocator.ErrInvalid)
		}
		container := fmt.Sprintf("container-%d", m.random.IntN(2))
		for gpu, held := range holds.slices {
			holds.slices[gpu] = slice{held.units, container}
		}
		return what, m.table.Running(ctx, owner, attempt, container, holds.gpus())
	default:
		return m.claim(ctx, number, attempt)
	}
}

func (m *model) claim(ctx context.Context, number int, attempt string) (what string, err error) {
	var bookings []allocator.Booking
	if holds := m.tasks[number]; holds != nil && m.random.IntN(2) == 0 {
		for _, gpu := range holds.gpus() { // the same again
			bookings = append(bookings, booking(gpu, holds.slices[gpu].units))
		}
	} else {
		bookings = m.bookings(number)
	}
	owner := owner(number)
	what = fmt.Sprintf("claim %s %s %v", owner, attempt, bookings)
	err = m.table.Claim(ctx, owner, attempt, bookings)
	for other, holds := range m.tasks {
		for _, b := range bookings {
			if other != number && len(holds.slices[b.GPU].units.Intersect(b.Units)) > 0 {
				return what, want(err, allocator.ErrHeld)
			}
		}
	}
	m.claimed(number, attempt, bookings)
	return what, err
}

// bookings returns random units of random GPUs. A task that holds something
// books the same GPUs again, as a restarted task does.
func (m *model) bookings(number int) []allocator.Booking {
	on := gpus()
	m.random.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
	on = on[:1+m.random.IntN(len(on))]
	if holds := m.tasks[number]; holds != nil {
		on = holds.gpus()
	}
	var bookings []allocator.Booking
	for _, gpu := range on {
		units := m.random.Perm(unitCount)[:1+m.random.IntN(3)]
		bookings = append(bookings, booking(gpu, allocator.NewUnitSet(units...)))
	}
	return bookings
}

// claimed records a claim that succeeded. What the same attempt holds already
// stays as it is.
func (m *model) claimed(number int, attempt string, bookings []allocator.Booking) {
	before := m.tasks[number]
	now := &task{attempt: attempt, slices: map[allocator.GPUID]slice{}}
	for _, b := range bookings {
		now.slices[b.GPU] = slice{units: b.Units}
		if before != nil && before.attempt == attempt && before.slices[b.GPU].units.Equal(b.Units) {
			now.slices[b.GPU] = before.slices[b.GPU]
		}
	}
	m.tasks[number] = now
}

// compare reports where the table's claims and the model differ.
func (m *model) compare(ctx context.Context) error {
	snapshot, err := m.table.Snapshot(ctx)
	if err != nil {
		return err
	}
	if len(snapshot.Problems) > 0 {
		return snapshot.Problems[0].Err
	}
	want := map[string]bool{}
	for number, holds := range m.tasks {
		for gpu, held := range holds.slices {
			want[line(owner(number), holds.attempt, gpu, held.units, held.container)] = true
		}
	}
	for _, gpu := range snapshot.GPUs {
		for _, claim := range gpu.Claims() {
			have := line(claim.Owner, claim.Attempt, gpu.ID, claim.Units, claim.Container)
			if running := claim.State == allocator.Running; running != (claim.Container != "") {
				return fmt.Errorf("state %q: %s", claim.State, have)
			}
			if !want[have] {
				return fmt.Errorf("the table has %s", have)
			}
			delete(want, have)
		}
	}
	for missing := range want {
		return fmt.Errorf("the table lacks %s", missing)
	}
	return nil
}

func line(owner allocator.Owner, attempt string, gpu allocator.GPUID, units allocator.UnitSet, container string) string {
	return fmt.Sprintf("%s %s: units %s of %s, container %q", owner, attempt, units, gpu, container)
}

func (t *task) gpus() []allocator.GPUID {
	var gpus []allocator.GPUID
	for gpu := range t.slices {
		gpus = append(gpus, gpu)
	}
	slices.Sort(gpus) // a seed must give the same test again
	return gpus
}

// want turns a result into a complaint if it is not the wanted error.
func want(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return fmt.Errorf("want error %q, have %v", target, err) //nolint:errorlint // err may be nil
}
