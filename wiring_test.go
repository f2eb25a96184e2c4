package main

import (
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/internal/tableconfig"
)

func TestOpenTable(t *testing.T) {
	t.Parallel()
	config := tableconfig.Default()
	config.Store, config.Path = tableconfig.StoreFile, filepath.Join(t.TempDir(), "table.json")
	table, err := openTable(config, nil)
	must.NoError(t, err)
	snapshot, err := table.Snapshot(t.Context())
	must.NoError(t, err)
	must.SliceEmpty(t, snapshot.GPUs)
	must.NoError(t, table.Close())

	table, err = openTable(tableconfig.Default(), nil) // nothing is asked of Consul yet
	must.NoError(t, err)
	must.NoError(t, table.Close())
}

// The device plugin tries again as long as it has no table at all.
func TestOpenDeviceTableFails(t *testing.T) {
	t.Parallel()
	config := tableconfig.Default()
	config.Address = "unknown://%"
	table, err := openDeviceTable(config, hclog.NewNullLogger())
	must.Error(t, err)
	must.True(t, table == nil)
}
