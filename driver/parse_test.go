// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package driver

import (
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/config"
)

// configFrom reads an operator's config block as Nomad does.
func configFrom(t *testing.T, hcl string) config.Config {
	t.Helper()
	var c config.Config
	hclutils.NewConfigParser(config.Spec()).ParseHCL(t, "config {\n"+hcl+"\n}", &c)
	return c
}

// taskFrom reads a job's config block as Nomad does.
func taskFrom(t *testing.T, hcl string) *config.TaskConfig {
	t.Helper()
	var c config.TaskConfig
	hclutils.NewConfigParser(config.TaskSpec()).ParseHCL(t, "config {\nimage = \"local/app:1\"\n"+hcl+"\n}", &c)
	return &c
}

// configBlock returns the config block in a file.
func configBlock(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.NoError(t, err)
	return string(text[strings.Index(string(text), "config {"):])
}
