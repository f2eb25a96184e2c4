// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"nomad-gpu-mem/internal/tableconfig"
)

const tableHelp = `By default the table is in the Consul at 127.0.0.1:8500, below the key gpu-mem. Flags
and these environment variables change that; a flag overrides its variable.
  GPU_MEM_TABLE_STORE       --table-store
  GPU_MEM_TABLE_ADDRESS     --table-address
  GPU_MEM_TABLE_PREFIX      --table-prefix
  GPU_MEM_TABLE_TOKEN_FILE  --table-token-file
  GPU_MEM_TABLE_PATH        --table-path
  and so on, a variable for each flag that begins with --table-.
  CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN and the other variables of Consul's clients
  apply where address and token file are not set. NO_COLOR is honoured.`

// defaultConsul is the default address of Consul's clients.
const defaultConsul = "127.0.0.1:8500"

// tableFlags are the options that locate the table.
type tableFlags struct {
	config tableconfig.Config
	getenv func(string) string
}

// register adds the flags. A flag's default is its environment variable, then
// the default of the plugins' table block.
func (f *tableFlags) register(flags *pflag.FlagSet) {
	d := tableconfig.Default()
	f.add(flags, &f.config.Store, "store", d.Store, "where the table is kept: consul or file")
	f.add(flags, &f.config.Address, "address", "", "Consul's `address`: host:port or a URL")
	f.add(flags, &f.config.Prefix, "prefix", d.Prefix, "Consul `key` that all keys of the table are below")
	f.add(flags, &f.config.TokenFile, "token-file", "", "`file` that holds a Consul ACL token")
	f.add(flags, &f.config.CAFile, "ca-file", "", "`file` with the authority that signed Consul's certificate")
	f.add(flags, &f.config.CertFile, "cert-file", "", "`file` with a certificate for Consul")
	f.add(flags, &f.config.KeyFile, "key-file", "", "`file` with the key of --table-cert-file")
	f.add(flags, &f.config.TLSServerName, "tls-server-name", "", "`name` in Consul's certificate, if not the address's host")
	f.add(flags, &f.config.Namespace, "namespace", "", "Consul Enterprise `namespace`")
	f.add(flags, &f.config.Partition, "partition", "", "Consul Enterprise admin `partition`")
	f.add(flags, &f.config.Datacenter, "datacenter", "", "Consul `datacenter`, if not the agent's")
	f.add(flags, &f.config.Path, "path", d.Path, "table's `file`, with --table-store=file")
}

func (f *tableFlags) add(flags *pflag.FlagSet, target *string, name, fallback, usage string) {
	value := f.getenv("GPU_MEM_TABLE_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
	if value == "" {
		value = fallback
	}
	flags.StringVar(target, "table-"+name, value, usage)
}

// resolve returns the table's configuration. Invalid values are usage errors.
func (f *tableFlags) resolve() (tableconfig.Config, error) {
	config := f.config
	for _, path := range []*string{&config.TokenFile, &config.CAFile, &config.CertFile, &config.KeyFile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // on the command line a path may be relative
		if err != nil {
			return config, usageError{err}
		}
		*path = absolute
	}
	if config.TokenFile != "" {
		text, err := os.ReadFile(config.TokenFile)
		if err != nil {
			return config, usageError{fmt.Errorf("--table-token-file: %w", err)}
		}
		if strings.TrimSpace(string(text)) == "" {
			return config, usageError{fmt.Errorf("--table-token-file: %s is empty", config.TokenFile)}
		}
	}
	if err := config.Validate(); err != nil {
		return config, usageError{err}
	}
	return config, nil
}

// exists returns an error if the table's file is missing. To the plugins that is an empty
// table; for an operator it is more likely a wrong path.
func exists(config tableconfig.Config) error {
	if config.Store != tableconfig.StoreFile {
		return nil
	}
	_, err := os.Stat(config.Path)
	return err
}

// describe names the table's location in messages.
func (f *tableFlags) describe() string {
	if f.config.Store == tableconfig.StoreFile {
		return "file " + f.config.Path
	}
	text := fmt.Sprintf("Consul %s, prefix %s",
		cmp.Or(f.config.Address, f.getenv("CONSUL_HTTP_ADDR"), defaultConsul), f.config.Prefix)
	for _, part := range []struct{ name, value string }{
		{"namespace", cmp.Or(f.config.Namespace, f.getenv("CONSUL_NAMESPACE"))},
		{"partition", cmp.Or(f.config.Partition, f.getenv("CONSUL_PARTITION"))},
		{"datacenter", f.config.Datacenter},
	} {
		if part.value != "" {
			text += ", " + part.name + " " + part.value
		}
	}
	return text
}
