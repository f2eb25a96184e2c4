// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-gpu-mem/internal/planner"
)

// jobCommand is what plan and run have in common: they read a job and plan it.
type jobCommand struct {
	app    App
	flags  *plannerFlags
	file   *jobFlags
	asJSON bool

	preserveCounts bool
}

func newJobCommand(a App, table *tableFlags) *jobCommand {
	return &jobCommand{app: a, flags: newPlannerFlags(table), file: &jobFlags{getenv: a.Getenv}}
}

func (c *jobCommand) register(flags *pflag.FlagSet) {
	c.flags.register(flags)
	c.file.register(flags)
	flags.BoolVar(&c.asJSON, "json", false, "print JSON (docs/planner.md)")
	flags.BoolVar(&c.preserveCounts, "preserve-counts", false, "keep the counts that the registered job's groups have, such as an autoscaler's")
}

// jobSite is a job and what it is planned with.
type jobSite struct {
	*site
	job     *jobFile
	options planner.Options
}

// open reads the job of a file, and opens what it is planned with. The caller closes it.
func (c *jobCommand) open(cmd *cobra.Command, path string) (*jobSite, error) {
	options, err := c.flags.options()
	if err != nil {
		return nil, err
	}
	site, err := c.app.openSite(c.flags)
	if err != nil {
		return nil, err
	}
	job, err := c.file.read(cmd.Context(), site.client, path, cmd.InOrStdin())
	if err != nil {
		return nil, errors.Join(c.flags.explain(err), site.Close())
	}
	options.PreserveCounts = c.preserveCounts
	return &jobSite{site: site, job: job, options: options}, nil
}

// jobFlags are the options that say what a job file is.
type jobFlags struct {
	getenv   func(string) string
	vars     []string
	varFiles []string
}

func (f *jobFlags) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.vars, "var", nil, "a variable of the job file, as `name=value`; repeat it for more")
	flags.StringArrayVar(&f.varFiles, "var-file", nil, "`file` with variables of the job file; repeat it for more")
}

// jobFile is a job, and the file that it was read from as Nomad's UI shows it.
type jobFile struct {
	*planner.Document
	source *api.JobSubmission
}

// Formats of a job's source, as Nomad knows them.
const formatJSON, formatHCL = "json", "hcl2"

// read returns the job of a file, of standard input if that is "-". HCL is read
// by Nomad, which knows its own version of it.
func (f *jobFlags) read(ctx context.Context, client *api.Client, path string, stdin io.Reader) (*jobFile, error) {
	text, err := readFile(path, stdin)
	if err != nil {
		return nil, usageError{err}
	}
	file := &jobFile{source: &api.JobSubmission{Source: string(text), Format: formatJSON}}
	if json.Valid(text) {
		if file.Document, err = planner.ReadJob(text); err != nil {
			return nil, usageError{err}
		}
	} else if err = f.parse(ctx, client, path, file); err != nil {
		return nil, err
	}
	file.Document, err = f.complete(file.Document)
	return file, err
}

// parse lets Nomad read HCL. Its answer is kept as it is: an agent may know more of a
// job than this program.
func (f *jobFlags) parse(ctx context.Context, client *api.Client, path string, file *jobFile) error {
	variables, err := f.variables()
	if err != nil {
		return usageError{err}
	}
	if err := f.describe(file.source); err != nil {
		return usageError{err}
	}
	var answer json.RawMessage
	request := &api.JobsParseRequest{JobHCL: file.source.Source, Variables: variables}
	w := (&api.WriteOptions{}).WithContext(ctx)
	if _, err := client.Raw().Write("/v1/jobs/parse", request, &answer, w); err != nil {
		return fmt.Errorf("Nomad at %s cannot read %s: %w", client.Address(), path, err)
	}
	if file.Document, err = planner.ReadJob(answer); err != nil {
		return fmt.Errorf("%s as Nomad at %s reads it: %w", path, client.Address(), err)
	}
	return nil
}

// describe completes the source of a job in HCL: flags by name, and the variables of
// all files as one.
func (f *jobFlags) describe(source *api.JobSubmission) error {
	files := jobFlags{varFiles: f.varFiles}
	variables, err := files.variables()
	source.Format, source.Variables, source.VariableFlags = formatHCL, variables, map[string]string{}
	for _, v := range f.vars {
		name, value, _ := strings.Cut(v, "=")
		source.VariableFlags[name] = value
	}
	return err
}

// complete adds what `nomad job run` takes from the environment. Newer versions of
// Nomad have no tokens in jobs and pass over them.
func (f *jobFlags) complete(job *planner.Document) (*planner.Document, error) {
	for variable, field := range map[string]string{"NOMAD_NAMESPACE": "Namespace", "CONSUL_HTTP_TOKEN": "ConsulToken", "VAULT_TOKEN": "VaultToken"} {
		value := f.getenv(variable)
		if value == "" {
			continue
		}
		var err error
		if job, err = job.With(field, value); err != nil {
			return nil, err
		}
	}
	return job, nil
}

func readFile(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// variables are those of the flags, as one file of variables has them: of a name
// that is given twice the last counts, and --var before --var-file. Values of
// --var are strings unless they are lists or objects: HCL makes numbers of
// strings where the variable is one.
func (f *jobFlags) variables() (string, error) {
	all := hclwrite.NewEmptyFile()
	for _, path := range f.varFiles {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if err := setVariables(all.Body(), path, text); err != nil {
			return "", err
		}
	}
	for _, v := range f.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return "", fmt.Errorf("--var %q is not of the form name=value", v)
		}
		if !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") {
			value = quoteHCL(value)
		}
		if err := setVariables(all.Body(), "--var "+name, []byte(name+" = "+value+"\n")); err != nil {
			return "", err
		}
	}
	return string(all.BuildTokens(nil).Bytes()), nil // all.Bytes formats, by way of a global
}

// setVariables adds the variables of a text, in HCL or JSON, or replaces those of
// the same name.
func setVariables(all *hclwrite.Body, from string, text []byte) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) == nil {
		text = nil
		for name, value := range object {
			text = fmt.Appendf(text, "%s = %s\n", name, value)
		}
	}
	file, diagnostics := hclwrite.ParseConfig(text, from, hcl.InitialPos)
	if diagnostics.HasErrors() {
		return diagnostics
	}
	for name, attribute := range file.Body().Attributes() {
		all.SetAttributeRaw(name, attribute.Expr().BuildTokens(nil))
	}
	return nil
}

// quoteHCL writes a string that stands for itself.
func quoteHCL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").Replace(s) + `"`
}

// oneJob wants the file of one job.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s takes one job file, or - for standard input; have %q", cmd.CommandPath(), args)}
}
