package cli

import (
	"context"

	"nomad-gpu-mem/allocator"
)

// withTable opens the table that the flags name, for a command that reads it.
func (a App) withTable(flags *tableFlags, do func(*allocator.Table) error) error {
	return a.openTable(flags, flags.explain, do)
}

// changeTable opens the table for a command that looks at it and then changes
// it.
func (a App) changeTable(ctx context.Context, flags *tableFlags, do func(*allocator.Table, *allocator.Snapshot) error) error {
	return a.openTable(flags, flags.explainChange, func(table *allocator.Table) error {
		snapshot, err := table.Snapshot(ctx)
		if err != nil {
			return flags.explainChange(err)
		}
		return do(table, snapshot)
	})
}

func (a App) openTable(flags *tableFlags, explain func(error) error, do func(*allocator.Table) error) error {
	config, err := flags.resolve()
	if err != nil {
		return err
	}
	if err := exists(config); err != nil {
		return explain(err)
	}
	table, err := a.OpenTable(config)
	if err != nil {
		return explain(err)
	}
	defer table.Close()
	return do(table)
}
