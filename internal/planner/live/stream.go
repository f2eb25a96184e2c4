// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package live

import (
	"context"
	"errors"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/nomad/structs"

	"nomad-gpu-mem/internal/pause"
)

// errStreamEnded is returned when Nomad has ended the event stream.
var errStreamEnded = errors.New("Nomad has ended the event stream")

// listen adds the jobs that Nomad's event stream concerns to the agenda, until ctx ends.
// When the stream breaks it resumes after the last event and adds all jobs, since Nomad
// keeps a limited number of events. It fails if Nomad denies the stream at first.
func (w *watcher) listen(ctx context.Context, index uint64) error {
	retry := w.backoff()
	for first := true; ; first = false {
		last, err := w.stream(ctx, index, !first)
		if ctx.Err() != nil {
			return nil
		}
		if first && last == index && denied(err) {
			return nomadFailed("read the event stream; the token needs node:read, and read-job in the namespace", err)
		}
		if last != index {
			index = last
			retry.Reset()
		}
		w.how.Trouble(nomadFailed("read the event stream", err))
		if pause.For(ctx, retry.NextBackOff()) != nil {
			return nil
		}
	}
}

// stream follows the event stream after an index until it ends, and returns the index of
// the last event.
func (w *watcher) stream(ctx context.Context, index uint64, again bool) (last uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &api.QueryOptions{Namespace: w.how.Space}
	topics := map[api.Topic][]string{api.TopicJob: nil, api.TopicEvaluation: nil, api.TopicNode: nil}
	batches, err := w.site.nomad.EventStream().Stream(ctx, topics, index+1, q)
	if err != nil {
		cancel()
		return index, err
	}
	defer func() {
		cancel()
		for range batches { // until its sender has ended
		}
	}()
	if again {
		w.agenda.add(work{all: true})
	}
	for {
		select {
		case <-ctx.Done():
			return index, nil
		case batch, more := <-batches:
			switch {
			case !more:
				return index, errStreamEnded
			case batch.Err != nil:
				return index, batch.Err
			}
			index = batch.Index
			for _, event := range batch.Events {
				w.note(event)
			}
		}
	}
}

// note adds the jobs that an event concerns to the agenda: all for a node, one for a job
// or a blocked evaluation.
func (w *watcher) note(event api.Event) {
	switch event.Topic {
	case api.TopicNode:
		w.agenda.add(work{all: true})
	case api.TopicJob:
		w.agenda.add(only(field(event, "Job", "Namespace"), event.Key))
	case api.TopicEvaluation:
		if field(event, "Evaluation", "Status") == structs.EvalStatusBlocked {
			w.agenda.add(only(field(event, "Evaluation", "Namespace"), field(event, "Evaluation", "JobID")))
		}
	}
}

// field returns a field of an event's object, "" if it has none.
func field(event api.Event, object, name string) string {
	fields, _ := event.Payload[object].(map[string]any)
	value, _ := fields[name].(string)
	return value
}
