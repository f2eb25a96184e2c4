// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

func TestParseRef(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("ab", 32)
	for _, tc := range []struct {
		name string
		want imageRef
	}{
		{"redis", imageRef{"docker.io/library/redis:latest", "docker.io", false}},
		{"redis:latest", imageRef{"docker.io/library/redis:latest", "docker.io", false}},
		{"redis:7", imageRef{"docker.io/library/redis:7", "docker.io", true}},
		{"https://redis:7", imageRef{"docker.io/library/redis:7", "docker.io", true}},
		{"team/app", imageRef{"docker.io/team/app:latest", "docker.io", false}},
		{"host:5000/img", imageRef{"host:5000/img:latest", "host:5000", false}},
		{"host:5000/img:1", imageRef{"host:5000/img:1", "host:5000", true}},
		{"localhost/img", imageRef{"localhost/img:latest", "localhost", false}},
		{"ghcr.io/a/b/c@" + digest, imageRef{"ghcr.io/a/b/c@" + digest, "ghcr.io", true}},
		{"redis:latest@" + digest, imageRef{"docker.io/library/redis:latest@" + digest, "docker.io", true}},
		{digest, imageRef{digest, "", true}},
	} {
		got, err := parseRef(tc.name)
		must.NoError(t, err, must.Sprint(tc.name))
		must.True(t, tc.want == got, must.Sprintf("%q: %+v", tc.name, got))
	}
	for _, bad := range []string{"", "host/Upper", "a b", "host:port:1/x", "http://redis"} {
		_, err := parseRef(bad)
		must.ErrorIs(t, err, ErrImageName, must.Sprint(bad))
	}
}

func TestFamiliarName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"redis": "redis:latest", "docker.io/library/redis:7": "redis:7", "https://host:5000/a/b": "host:5000/a/b:latest", "A B": "A B",
	} {
		must.Eq(t, want, FamiliarName(name))
	}
}
