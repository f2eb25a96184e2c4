// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

// Package consul keeps the allocation table in Consul's key-value store, so
// that all nodes of a cluster share it.
//
// Reads are consistent: they ask the leader, since a check-and-set after a
// stale read cannot win. Writes are one transaction of check-and-set
// operations on the keys' modify indexes. Watching is a blocking query on the
// prefix. Start reading at Store.Apply.
//
// A missing token, a token that may not, a token that Consul does not know and
// a Consul that does not answer are four different messages; see explain. No
// message contains a token.
package consul
