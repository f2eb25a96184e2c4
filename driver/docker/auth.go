// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/credentials"
	"github.com/docker/docker/api/types/registry"
)

// Auth are credentials for one registry. The zero value is anonymous.
type Auth struct {
	Username, Password string
	ServerAddress      string // host[:port]; mostly not needed, the image says it
	IdentityToken      string // in place of a password
}

func (a Auth) registry() registry.AuthConfig {
	return registry.AuthConfig{
		Username:      a.Username,
		Password:      a.Password,
		ServerAddress: a.ServerAddress,
		IdentityToken: a.IdentityToken,
	}
}

const (
	dockerHub    = "docker.io"
	dockerHubKey = "https://index.docker.io/v1/" // under which `docker login` stores Docker Hub's credentials
)

// storedUnder are the names under which a registry's credentials may be kept.
func storedUnder(host string) []string {
	if host == dockerHub {
		return []string{dockerHub, dockerHubKey}
	}
	return []string{host}
}

// credentialSources are the places of the operator's credentials. Empty strings: none.
type credentialSources struct {
	file   string // in the format of ~/.docker/config.json
	helper string // suffix of docker-credential-
}

// find returns the credentials for a registry. The first source that has an answer or an error wins: the task's own, the
// file (its entry, then the helper that it names), the helper. None: anonymous.
func (s credentialSources) find(ctx context.Context, host string, own *Auth) (Auth, error) {
	if own != nil {
		return *own, nil
	}
	if s.file != "" {
		auth, err := fromFile(ctx, s.file, host)
		if err != nil || auth != (Auth{}) {
			return auth, err
		}
	}
	if s.helper != "" {
		return fromHelper(ctx, s.helper, host)
	}
	return Auth{}, nil
}

func fromFile(ctx context.Context, path, host string) (Auth, error) {
	file, err := os.Open(path)
	if err != nil {
		return Auth{}, fmt.Errorf("opening the credentials file: %w", err)
	}
	defer file.Close()
	cfg, err := config.LoadFromReader(file)
	if err != nil {
		return Auth{}, fmt.Errorf("reading the credentials file %s: %w", path, err)
	}
	auth, err := entryOf(cfg, host)
	if err != nil || auth != (Auth{}) {
		return auth, err
	}
	for _, name := range storedUnder(host) {
		if helper := cfg.CredentialHelpers[name]; helper != "" {
			return fromHelper(ctx, helper, host)
		}
	}
	if cfg.CredentialsStore != "" {
		return fromHelper(ctx, cfg.CredentialsStore, host)
	}
	return Auth{}, nil
}

// entryOf reads the file's own entries. Their keys may be host names or URLs of old.
func entryOf(cfg *configfile.ConfigFile, host string) (Auth, error) {
	entries := credentials.NewFileStore(cfg)
	for _, name := range storedUnder(host) {
		got, err := entries.Get(name)
		if err != nil {
			return Auth{}, err
		}
		auth := Auth{Username: got.Username, Password: got.Password, IdentityToken: got.IdentityToken}
		if auth != (Auth{}) {
			auth.ServerAddress = name
			return auth, nil
		}
	}
	return Auth{}, nil
}

// fromHelper asks docker-credential-<suffix>. It gets the plain host name, since some helpers know registries only so; Docker
// Hub is asked for under the name that `docker login` uses as well.
func fromHelper(ctx context.Context, suffix, host string) (Auth, error) {
	for _, name := range storedUnder(host) {
		auth, err := askHelper(ctx, suffix, name)
		if err != nil || auth != (Auth{}) {
			return auth, err
		}
	}
	return Auth{}, nil
}

// askHelper speaks the credential helper protocol. "Not found" is anonymous; a user named <token> stands for an identity token.
func askHelper(ctx context.Context, suffix, server string) (Auth, error) {
	program := "docker-credential-" + suffix
	cmd := exec.CommandContext(ctx, program, "get")
	cmd.Stdin = strings.NewReader(server)
	out, err := cmd.Output()
	if err != nil {
		said := bytes.TrimSpace(out)
		if bytes.Contains(said, []byte("credentials not found")) {
			return Auth{}, nil
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			said = bytes.TrimSpace(append(said, exit.Stderr...))
		}
		return Auth{}, fmt.Errorf("%s: %w: %s", program, err, said)
	}
	var got struct{ Username, Secret string }
	if err := json.Unmarshal(out, &got); err != nil {
		return Auth{}, fmt.Errorf("%s: answer is not JSON: %w", program, err)
	}
	if got.Username == "<token>" {
		return Auth{IdentityToken: got.Secret, ServerAddress: server}, nil
	}
	return Auth{Username: got.Username, Password: got.Secret, ServerAddress: server}, nil
}
