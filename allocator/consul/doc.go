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
// A missing token, a token without the permission, an unknown token and an unavailable
// Consul have four different messages; see explain. No message contains a token.
//
// Where to look: store.go reads and watches, apply.go writes, lease.go has leases,
// tokens.go the ACL tokens, config.go the configuration, errors.go the messages.
package consul
