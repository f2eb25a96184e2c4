// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package webhook plans jobs for an admission proxy, so that jobs submitted by
// `nomad job run` are planned too. It implements both contracts of the Nomad
// Admission Control Proxy: it receives a job in the JSON of Nomad's API, and
// answers with a JSON Patch at /v1/patch, or with the changed job at /v1/mutate.
//
// If planning fails, the proxy gets the unchanged job with a warning, or an error
// if the operator wants unplanned jobs rejected.
//
// Where to look: handler.go handles requests, serve.go starts and stops the server.
package webhook
