// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package device

import (
	"fmt"

	"github.com/hashicorp/go-hclog"

	"nomad-gpu-mem/internal/tableconfig"
)

// lazyTable opens the allocation table when it is first needed, and retries if that fails.
// It is not safe for concurrent use.
type lazyTable struct {
	open   OpenTable
	config tableconfig.Config
	table  Table // nil until it could be opened
}

func (l *lazyTable) get() (Table, error) {
	if l.table != nil {
		return l.table, nil
	}
	table, err := l.open(l.config)
	if err != nil {
		return nil, fmt.Errorf("opening the allocation table: %w", err)
	}
	l.table = table
	return table, nil
}

func (l *lazyTable) close(logger hclog.Logger) {
	if l.table == nil {
		return
	}
	if err := l.table.Close(); err != nil {
		logger.Warn("cannot close the allocation table", "error", err)
	}
}
