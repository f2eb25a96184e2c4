// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/shoenig/test/must"
)

// TestProgress follows a pull of four layers from its messages, however the connection cuts them.
func TestProgress(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	p := newProgress(begin)
	must.Eq(t, "Pulled 0/0 (0B/0B) layers: 0 waiting/0 pulling", p.at(begin))

	told := func(messages ...string) string {
		r, w := io.Pipe()
		go func() {
			for _, piece := range strings.SplitAfter(strings.Join(messages, "\n"), `"`) {
				_, _ = io.WriteString(w, piece)
			}
			_ = w.Close()
		}()
		must.NoError(t, readMessages(r, func(m jsonmessage.JSONMessage) { p.add(m) }))
		return p.at(begin.Add(10 * time.Second))
	}
	must.Eq(t, "Pulled 1/4 (0B/0B) layers: 3 waiting/0 pulling", told(
		`{"status":"Pulling from library/redis","id":"7"}`,
		`{"status":"Already exists","progressDetail":{},"id":"a"}`,
		`{"status":"Pulling fs layer","progressDetail":{},"id":"b"}`,
		`{"status":"Pulling fs layer","progressDetail":{},"id":"c"}`,
		`{"status":"Waiting","progressDetail":{},"id":"d"}`))
	must.Eq(t, "Pulled 1/4 (300B/1kB) layers: 1 waiting/2 pulling - est 23s remaining", told(
		`{"status":"Downloading","progressDetail":{"current":100,"total":400},"progress":"[>  ]","id":"b"}`,
		`{"status":"Downloading","progressDetail":{"current":200,"total":600},"progress":"[>  ]","id":"c"}`))
	must.Eq(t, "Pulled 2/4 (600B/1kB) layers: 1 waiting/1 pulling - est 7s remaining", told(
		`{"status":"Verifying Checksum","progressDetail":{},"id":"b"}`,
		`{"status":"Download complete","progressDetail":{},"id":"b"}`,
		`{"status":"Extracting","progressDetail":{"current":10,"total":400},"id":"b"}`,
		`{"status":"Pull complete","progressDetail":{},"id":"b"}`))
	must.Eq(t, "Pulled 2/4 (600B/1kB) layers: 1 waiting/1 pulling - est 7s remaining", told(
		`{"status":"Digest: sha256:0123"}`, `{"status":"Status: Downloaded newer image for redis:7"}`))
}
