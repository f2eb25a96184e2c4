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
	flags.BoolVar(&c.preserveCounts, "preserve-counts", false, "keep the counts of the registered job's groups, for example an autoscaler's")
}

// jobSite is a job, and the cluster and options that it is planned with.
type jobSite struct {
	*site
	job     *jobFile
	options planner.Options
}

// open reads the job file, and opens Nomad and the table. The caller closes the site.
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

// jobFlags are the options that set a job file's variables.
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

// read returns the job of a file; "-" is standard input. Nomad parses HCL, since the
// syntax depends on Nomad's version.
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

// parse lets Nomad parse HCL. The answer is kept unchanged: an agent may know fields of a
// job that this program does not.
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
		return fmt.Errorf("Nomad at %s cannot parse %s: %w", client.Address(), path, err)
	}
	if file.Document, err = planner.ReadJob(answer); err != nil {
		return fmt.Errorf("%s as Nomad at %s parses it: %w", path, client.Address(), err)
	}
	return nil
}

// describe completes the source of an HCL job: the --var flags by name, and the variables
// of all files as one text.
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
// Nomad ignore tokens in jobs.
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

// variables returns the variables of all flags as one HCL file. If a name is given twice,
// the last value wins, and --var wins over --var-file. Values of --var are strings unless
// they are lists or objects: HCL converts strings where the variable is a number.
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
			return "", fmt.Errorf("--var: invalid value %q, want name=value", v)
		}
		if !strings.HasPrefix(value, "[") && !strings.HasPrefix(value, "{") {
			value = quoteHCL(value)
		}
		if err := setVariables(all.Body(), "--var "+name, []byte(name+" = "+value+"\n")); err != nil {
			return "", err
		}
	}
	return string(all.BuildTokens(nil).Bytes()), nil // all.Bytes formats and uses a global to do so
}

// setVariables adds the variables of a text in HCL or JSON, and replaces those of the
// same name.
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

// quoteHCL quotes a string without templates.
func quoteHCL(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "${", "$${", "%{", "%%{").Replace(s) + `"`
}

// oneJob requires one job file.
func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return usageError{fmt.Errorf("%s takes one job file, or - for standard input; got %q", cmd.CommandPath(), args)}
}
