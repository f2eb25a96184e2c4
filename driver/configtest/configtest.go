// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package configtest reads config blocks in tests as Nomad reads them.
package configtest

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
)

// Plugin reads what an operator writes between the braces of the plugin's config block.
func Plugin(t *testing.T, hcl string) config.Config {
	t.Helper()
	return parsePlugin(t, "config {\n"+hcl+"\n}")
}

// PluginFile reads the plugin's config block in a file.
func PluginFile(t *testing.T, path string) config.Config {
	t.Helper()
	return parsePlugin(t, block(t, path))
}

func parsePlugin(t *testing.T, hcl string) (c config.Config) {
	t.Helper()
	hclutils.NewConfigParser(config.Spec()).ParseHCL(t, hcl, &c)
	return c
}

// Task reads what a job's author writes in a task's config block, besides its image.
func Task(t *testing.T, hcl string) *config.TaskConfig {
	t.Helper()
	return parseTask(t, "config {\nimage = \"local/app:1\"\n"+hcl+"\n}")
}

// TaskFile reads the task's config block in a file.
func TaskFile(t *testing.T, path string) *config.TaskConfig {
	t.Helper()
	return parseTask(t, block(t, path))
}

func parseTask(t *testing.T, hcl string) *config.TaskConfig {
	t.Helper()
	var c config.TaskConfig
	hclutils.NewConfigParser(config.TaskSpec()).ParseHCL(t, hcl, &c)
	return &c
}

// block returns the first config block in a file.
func block(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must.NoError(t, err)
	_, found, ok := strings.Cut(string(text), "config {")
	must.True(t, ok, must.Sprintf("%s has no config block", path))
	return "config {" + found
}
