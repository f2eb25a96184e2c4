// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package containerspec

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-gpu-mem/driver/label"
)

// Ours are there whatever the job says, and only those the operator asked for besides.
func TestContainerLabels(t *testing.T) {
	t.Parallel()
	const nomads = "com.hashicorp.nomad."
	for _, c := range []struct {
		name, hcl, config string
		want              map[string]string
		remark            string
	}{
		{name: "none but ours"},
		{name: "the job's", hcl: `labels { a = "b" }`, want: map[string]string{"a": "b"}},
		{
			name: "the operator's by globs", config: `extra_labels = ["job_*", "namespace"]`,
			want: map[string]string{
				"nomad-gpu-mem.job_name": "job", "nomad-gpu-mem.job_id": "job-id", "nomad-gpu-mem.namespace": "prod",
			},
		},
		{name: "no parent, no label of one", config: `extra_labels = ["parent*"]`},
		{
			name: "Nomad's", config: "compat_labels = true\nextra_labels = [\"node_*\"]",
			want: map[string]string{
				nomads + "alloc_id": allocID, nomads + "node_id": "n1", nomads + "node_name": "",
				"nomad-gpu-mem.node_id": "n1", "nomad-gpu-mem.node_name": "",
			},
		},
		{
			name: "none of Nomad's is the job's", config: "compat_labels = true\nextra_labels = [\"job_id\"]",
			hcl: "labels {\n\"com.hashicorp.nomad.alloc_id\" = \"mine\"\n\"com.hashicorp.nomad.job_id\" = \"mine\"\n}",
			want: map[string]string{
				nomads + "alloc_id": allocID, nomads + "job_id": "job-id", "nomad-gpu-mem.job_id": "job-id",
			},
		},
		{
			name:   "a label by which Nomad's driver would end the container",
			hcl:    `labels { "com.hashicorp.nomad.alloc_id" = "mine" }`,
			remark: `com.hashicorp.nomad.alloc_id = "mine" was removed`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := newInput(t, c.hcl, c.config)
			in.Task.Namespace, in.Task.NodeID = "prod", "n1"
			want := map[string]string{label.Alloc: allocID, label.Attempt: allocID + "/app/1", label.GPUs: "", label.Node: "n1"}
			for key, value := range c.want {
				want[key] = value
			}
			spec, remarks, err := in.Build()
			must.NoError(t, err)
			must.Eq(t, want, spec.Config.Labels)
			if c.remark == "" {
				must.SliceEmpty(t, remarks)
				return
			}
			must.StrContains(t, remarks[0], c.remark)
		})
	}
}
