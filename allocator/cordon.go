// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package allocator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"nomad-gpu-mem/allocator/internal/keepjson"
)

// Cordon keeps new tasks off a GPU until an operator removes it. Running tasks keep running.
type Cordon struct {
	Schema schema    `json:"schema"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"` // when the GPU was cordoned

	// Release makes the device plugin close its NVML session, which keeps the GPUs of its
	// node open, so that the GPU can be reset.
	Release bool `json:"release,omitempty"`

	unknown keepjson.Fields
}

// MarshalJSON also writes the unknown fields that UnmarshalJSON kept.
func (c Cordon) MarshalJSON() ([]byte, error) {
	type plain Cordon
	return keepjson.Marshal(plain(c), c.unknown)
}

// UnmarshalJSON reads a cordon and keeps fields of newer versions.
func (c *Cordon) UnmarshalJSON(data []byte) error {
	type plain Cordon
	unknown, err := keepjson.Unmarshal(data, (*plain)(c))
	c.unknown = unknown
	return err
}

// decodeCordon reads the value of a cordon key; without a value it returns nil. Any value
// cordons the GPU: one that is not a Cordon becomes the reason, with invalid UTF-8 replaced,
// since neither Nomad nor JSON accepts it.
func decodeCordon(value []byte) *Cordon {
	if value == nil {
		return nil
	}
	var c Cordon
	if err := json.Unmarshal(value, &c); err != nil {
		if isNewer(value, "schema") != nil {
			return &Cordon{Reason: "cordoned by a newer version of nomad-gpu-mem"}
		}
		return &Cordon{Reason: strings.ToValidUTF8(string(value), "\uFFFD")}
	}
	return &c
}

// Cordon keeps new tasks off a GPU from the device plugin's next poll on. It is idempotent.
// It replaces the reason, and clears Release.
func (t *Table) Cordon(ctx context.Context, gpu GPUID, reason string) error {
	return t.cordon(ctx, gpu, reason, false)
}

// CordonForReset is Cordon with Release set. An empty reason keeps that of an older cordon.
func (t *Table) CordonForReset(ctx context.Context, gpu GPUID, reason string) error {
	return t.cordon(ctx, gpu, reason, true)
}

func (t *Table) cordon(ctx context.Context, gpu GPUID, reason string, release bool) error {
	return t.changeCordon(ctx, gpu, func(old *Cordon) (*Cordon, bool) {
		reason := reason
		if old != nil && release && reason == "" {
			reason = old.Reason
		}
		if old != nil && old.Reason == reason && old.Release == release {
			return nil, false
		}
		c := Cordon{Reason: reason, At: t.now(), Release: release}
		if old != nil {
			c.unknown = old.unknown
		}
		return &c, true
	})
}

// Uncordon lets new tasks on a GPU again. It is idempotent.
func (t *Table) Uncordon(ctx context.Context, gpu GPUID) error {
	return t.changeCordon(ctx, gpu, func(old *Cordon) (*Cordon, bool) { return nil, old != nil })
}

// changeCordon replaces the old cordon by the result of decide; nil removes it.
func (t *Table) changeCordon(ctx context.Context, gpu GPUID, decide func(old *Cordon) (*Cordon, bool)) error {
	if gpu == "" {
		return fmt.Errorf("cordon of a GPU without a UUID: %w", ErrInvalid)
	}
	key := CordonKey(gpu)
	return changeKey(ctx, t.store, key, func(entry Entry) ([]byte, bool, error) {
		cordon, changed := decide(decodeCordon(entry.Value))
		if !changed || cordon == nil {
			return nil, changed, nil
		}
		value, err := json.Marshal(cordon)
		if err != nil {
			return nil, false, fmt.Errorf("key %s: %w", key, err)
		}
		return value, true, nil
	})
}
