// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package webhook plans jobs for an admission proxy, so that a plain
// `nomad job run` is planned too. It speaks both contracts of the Nomad
// Admission Control Proxy: a job comes in as Nomad's API has it, and a JSON
// Patch goes out from /v1/patch, or the whole changed job from /v1/mutate.
//
// Whatever fails, the proxy gets a job that Nomad can take: unchanged, with a
// warning, or an error if the operator wants unplanned jobs refused.
//
// Where to look: handler.go answers, serve.go is the server's life.
package webhook
