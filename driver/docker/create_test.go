// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/shoenig/test/must"
)

// A MAC address is asked for where the daemon looks for it, and with the rest of the network's settings.
func TestCreateWithMACAddress(t *testing.T) {
	t.Parallel()
	const mac = "02:68:b3:29:da:98"
	for version, perNetwork := range map[string]bool{"1.41": false, "1.44": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var got container.CreateRequest
			daemon := &fakeDaemon{version: version, handler: map[string]http.Handler{
				"POST /containers/create": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_ = json.NewDecoder(r.Body).Decode(&got)
					answer(http.StatusCreated, `{"Id":"x"}`)(w, r)
				}),
			}}
			spec := Spec{Name: "x", Config: &container.Config{}, Host: &container.HostConfig{NetworkMode: "backend"}, MAC: mac,
				Network: &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{"backend": {Aliases: []string{"web"}}}}}
			_, err := daemon.start(t, Config{}).Create(t.Context(), spec)
			must.NoError(t, err)
			endpoint := got.NetworkingConfig.EndpointsConfig["backend"]
			must.Eq(t, []string{"web"}, endpoint.Aliases)
			if perNetwork {
				must.Eq(t, mac, endpoint.MacAddress)
			} else {
				must.Eq(t, mac, got.MacAddress) //nolint:staticcheck // what an old daemon reads
			}
			must.Eq(t, "", spec.Network.EndpointsConfig["backend"].MacAddress, must.Sprint("the caller's spec stays as it is"))
		})
	}
}

// People know an image by its name; what runs is the image whose environment was looked at, whatever the name means by now.
func TestCreateGoesByTheImagesName(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		leadsTo string // empty: to nothing
		want    []string
	}{
		{"as before", "sha256:old", []string{"redis:7"}},
		{"moved", "sha256:new", []string{"redis:7", "sha256:old"}},
		{"gone", "", []string{"redis:7", "sha256:old"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var created []string
			removed := false
			daemon := &fakeDaemon{handler: map[string]http.Handler{
				"POST /containers/create": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var got container.CreateRequest
					_ = json.NewDecoder(r.Body).Decode(&got)
					created = append(created, got.Image)
					if got.Image == "redis:7" && test.leadsTo == "" {
						answer(http.StatusNotFound, `{"message":"No such image: redis:7"}`)(w, r)
						return
					}
					answer(http.StatusCreated, `{"Id":"x"}`)(w, r)
				}),
				"GET /containers/x/json": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if removed {
						answer(http.StatusNotFound, `{"message":"No such container: x"}`)(w, r)
						return
					}
					answer(http.StatusOK, `{"Id":"x","Image":"`+test.leadsTo+`","State":{},"Config":{},"HostConfig":{},"NetworkSettings":{}}`)(w, r)
				}),
				"DELETE /containers/x": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					removed = true
					answer(http.StatusNoContent, "")(w, r)
				}),
			}}
			spec := Spec{Name: "x", Config: &container.Config{Image: "sha256:old"}, Host: &container.HostConfig{}, ImageName: "redis:7"}
			id, err := daemon.start(t, Config{}).Create(t.Context(), spec)
			must.NoError(t, err)
			must.Eq(t, "x", id)
			must.Eq(t, test.want, created)
			must.Eq(t, test.leadsTo == "sha256:new", removed)
			must.Eq(t, "sha256:old", spec.Config.Image, must.Sprint("the caller's spec stays as it is"))
		})
	}
}
