// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
)

// writeHelper puts a credential helper named docker-credential-<suffix> on PATH. It notes what it was asked in the file asked.
func writeHelper(t *testing.T, suffix, script string) (asked string) {
	t.Helper()
	dir := t.TempDir()
	asked = filepath.Join(dir, "asked")
	body := "#!/bin/sh\nserver=$(cat)\necho \"$1 $server\" >>" + asked + "\n" + script + "\n"
	must.NoError(t, os.WriteFile(filepath.Join(dir, "docker-credential-"+suffix), []byte(body), 0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return asked
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.json")
	must.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	basic := base64.StdEncoding.EncodeToString([]byte("u:p"))
	for _, tc := range []struct {
		name, file, host string
		want             Auth
	}{
		{"host", `{"auths":{"r.example:5000":{"auth":"` + basic + `"}}}`, "r.example:5000",
			Auth{Username: "u", Password: "p", ServerAddress: "r.example:5000"}},
		{"URL of old", `{"auths":{"https://r.example/v1/":{"auth":"` + basic + `"}}}`, "r.example",
			Auth{Username: "u", Password: "p", ServerAddress: "r.example"}},
		{"Docker Hub", `{"auths":{"https://index.docker.io/v1/":{"auth":"` + basic + `"}}}`, "docker.io",
			Auth{Username: "u", Password: "p", ServerAddress: "https://index.docker.io/v1/"}},
		{"identity token alone", `{"auths":{"r.example":{"identitytoken":"t"}}}`, "r.example",
			Auth{IdentityToken: "t", ServerAddress: "r.example"}},
		{"other registry", `{"auths":{"r.example":{"auth":"` + basic + `"}}}`, "other.example", Auth{}},
		{"empty", `{}`, "r.example", Auth{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sources := credentialSources{file: writeFile(t, tc.file)}
			got, err := sources.find(context.Background(), tc.host, nil)
			must.NoError(t, err)
			must.Eq(t, tc.want, got)
		})
	}
}

func TestCredentialsOrder(t *testing.T) {
	asked := writeHelper(t, "order", `echo '{"Username":"h","Secret":"s"}'`)
	file := writeFile(t, `{"auths":{"a.example":{"username":"f","password":"p"}}, "credHelpers":{"b.example":"order"}}`)
	sources := credentialSources{file: file, helper: "order"}
	ctx := context.Background()

	own, err := sources.find(ctx, "a.example", &Auth{Username: "own"})
	must.NoError(t, err)
	must.Eq(t, "own", own.Username)

	fromFile, err := sources.find(ctx, "a.example", nil)
	must.NoError(t, err)
	must.Eq(t, "f", fromFile.Username)

	anonymous, err := sources.find(ctx, "a.example", &Auth{})
	must.NoError(t, err)
	must.Eq(t, Auth{}, anonymous)
	named, err := sources.find(ctx, "b.example", nil)
	must.NoError(t, err)
	must.Eq(t, Auth{Username: "h", Password: "s", ServerAddress: "b.example"}, named)

	last, err := sources.find(ctx, "c.example:5000", nil)
	must.NoError(t, err)
	must.Eq(t, "h", last.Username)

	calls, err := os.ReadFile(asked)
	must.NoError(t, err)
	must.Eq(t, "get b.example\nget c.example:5000\n", string(calls))
}

func TestCredentialHelperAnswers(t *testing.T) {
	ctx := context.Background()
	t.Run("identity token", func(t *testing.T) {
		writeHelper(t, "token", `echo '{"Username":"<token>","Secret":"s"}'`)
		got, err := credentialSources{helper: "token"}.find(ctx, "r.example", nil)
		must.NoError(t, err)
		must.Eq(t, Auth{IdentityToken: "s", ServerAddress: "r.example"}, got)
	})
	t.Run("nothing, under both names of Docker Hub", func(t *testing.T) {
		asked := writeHelper(t, "none", `echo "credentials not found in native keychain"; exit 1`)
		got, err := credentialSources{helper: "none"}.find(ctx, "docker.io", nil)
		must.NoError(t, err)
		must.Eq(t, Auth{}, got)
		calls, err := os.ReadFile(asked)
		must.NoError(t, err)
		must.Eq(t, "get docker.io\nget https://index.docker.io/v1/\n", string(calls))
	})
	t.Run("failure", func(t *testing.T) {
		writeHelper(t, "bad", `echo "vault is sealed" >&2; exit 3`)
		_, err := credentialSources{helper: "bad"}.find(ctx, "r.example", nil)
		must.ErrorContains(t, err, "docker-credential-bad")
		must.ErrorContains(t, err, "vault is sealed")
	})
	t.Run("missing", func(t *testing.T) {
		_, err := credentialSources{helper: "is-not-there"}.find(ctx, "r.example", nil)
		must.ErrorContains(t, err, "docker-credential-is-not-there")
	})
	t.Run("missing file", func(t *testing.T) {
		_, err := credentialSources{file: "/is/not/there"}.find(ctx, "r.example", nil)
		must.ErrorIs(t, err, os.ErrNotExist)
	})
}
