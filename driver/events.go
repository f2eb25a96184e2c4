// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/drivers/shared/eventer"
	"github.com/hashicorp/nomad/plugins/drivers"
)

// announcer tells Nomad what happens to a task; `nomad alloc status` shows it. Its
// loop starts with the first use, so that a plugin which is only asked for its
// schema starts nothing.
type announcer struct {
	ctx    context.Context
	logger hclog.Logger
	once   sync.Once
	events *eventer.Eventer
}

func (a *announcer) eventer() *eventer.Eventer {
	a.once.Do(func() { a.events = eventer.NewEventer(a.ctx, a.logger) })
	return a.events
}

// warn tells the task's owner, and the operator by the plugin's log.
func (a *announcer) warn(task *drivers.TaskConfig, message string) {
	a.logger.Warn("not all of a job is as it says", "task_id", task.ID, "reason", message)
	a.tell(task, message)
}

// tell sends one event. annotations are key and value in turn.
func (a *announcer) tell(task *drivers.TaskConfig, message string, annotations ...string) {
	event := &drivers.TaskEvent{
		TaskID:    task.ID,
		TaskName:  task.Name,
		AllocID:   task.AllocID,
		Timestamp: time.Now(),
		Message:   message,
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		if event.Annotations == nil {
			event.Annotations = map[string]string{}
		}
		event.Annotations[annotations[i]] = annotations[i+1]
	}
	a.logger.Debug("task event", "task_id", task.ID, "message", message)
	if err := a.eventer().EmitEvent(event); err != nil {
		a.logger.Debug("task event not delivered", "task_id", task.ID, "error", err)
	}
}

// TaskEvents streams the events of all tasks until ctx ends.
func (p *Plugin) TaskEvents(ctx context.Context) (<-chan *drivers.TaskEvent, error) {
	events, err := p.announcer.eventer().TaskEvents(ctx)
	if err == nil {
		context.AfterFunc(ctx, p.agent.open(time.Now))
	}
	return events, err
}
