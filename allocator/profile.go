// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// Profile records how much GPU memory a kind of task needs: a base, and an amount for each
// unit of some attributes. The package profile evaluates it. All memory is in MiB.
type Profile struct {
	Schema    schema             `json:"schema"`
	About     string             `json:"about,omitempty"` // description
	BaseMiB   float64            `json:"base_mib"`
	MiBPer    map[string]float64 `json:"mib_per,omitempty"` // by attribute: MiB for each unit of it
	MinMiB    uint64             `json:"min_mib,omitempty"` // no task gets less
	MaxMiB    uint64             `json:"max_mib,omitempty"` // a task that needs more is rejected; 0 is unlimited
	UpdatedAt time.Time          `json:"updated_at"`

	unknown keepjson.Fields
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (p Profile) MarshalJSON() ([]byte, error) {
	type plain Profile
	return keepjson.Marshal(plain(p), p.unknown)
}

// UnmarshalJSON reads a profile and keeps fields of newer versions.
func (p *Profile) UnmarshalJSON(data []byte) error {
	type plain Profile
	unknown, err := keepjson.Unmarshal(data, (*plain)(p))
	p.unknown = unknown
	return err
}

func (p Profile) check() error {
	if p.BaseMiB == 0 && len(p.MiBPer) == 0 {
		return errors.New("profile without base_mib and mib_per")
	}
	return nil
}

// Profile returns the profile of that name. The error matches ErrNoProfile if
// there is none, and ErrUnreadable if it cannot be read.
func (t *Table) Profile(ctx context.Context, name string) (Profile, error) {
	key := ProfileKey(name)
	entry, err := t.store.Get(ctx, key)
	if err != nil {
		return Profile{}, err
	}
	if entry.Version == 0 {
		return Profile{}, fmt.Errorf("profile %q (key %s): %w", name, key, ErrNoProfile)
	}
	p, err := decodeState[Profile](entry.Value)
	if err != nil {
		return Profile{}, fmt.Errorf("profile %q (key %s): %w", name, key, err)
	}
	return p, nil
}

// Profiles returns all profiles by name, and the values that cannot be read.
func (t *Table) Profiles(ctx context.Context) (map[string]Profile, []Problem, error) {
	entries, _, err := t.store.Watch(ctx, 0)
	if err != nil {
		return nil, nil, err
	}
	profiles := map[string]Profile{}
	var problems []Problem
	for _, entry := range entries {
		name, isProfile := parseProfileKey(entry.Key)
		if !isProfile {
			continue
		}
		p, err := decodeState[Profile](entry.Value)
		if err != nil {
			problems = append(problems, Problem{Key: entry.Key, Err: err})
			continue
		}
		profiles[name] = p
	}
	return profiles, problems, nil
}

// PutProfile records a profile if it differs from the recorded one in more than the time. It
// does not replace an unreadable one: the error matches ErrUnreadable.
func (t *Table) PutProfile(ctx context.Context, name string, p Profile) error {
	if name == "" {
		return fmt.Errorf("profile without a name: %w", ErrInvalid)
	}
	if err := p.check(); err != nil {
		return fmt.Errorf("profile %q: %w: %w", name, err, ErrInvalid)
	}
	return put(ctx, t.store, ProfileKey(name), func(old Profile, exists bool) (Profile, bool, error) {
		p.unknown, p.UpdatedAt = old.unknown, old.UpdatedAt
		if same, err := sameJSON(old, p); err != nil || exists && same {
			return old, false, err
		}
		p.UpdatedAt = t.now()
		return p, true, nil
	})
}

// DeleteProfile removes a profile. The error matches ErrNoProfile if there is
// none. Running jobs are not affected.
func (t *Table) DeleteProfile(ctx context.Context, name string) error {
	key := ProfileKey(name)
	return changeKey(ctx, t.store, key, func(entry Entry) ([]byte, bool, error) {
		if entry.Version == 0 {
			return nil, false, fmt.Errorf("profile %q (key %s): %w", name, key, ErrNoProfile)
		}
		return nil, true, nil
	})
}

// ErrNoProfile is returned when no profile has the given name.
var ErrNoProfile = errors.New("profile not found")

var (
	_ json.Marshaler   = Profile{}
	_ json.Unmarshaler = (*Profile)(nil)
)
