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
