// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"

	"nomad-gpu-mem/allocator"
)

const (
	// maxOperations is how many operations every Consul accepts in one transaction.
	// Version 1.14 raised it to 128.
	maxOperations = 64

	// maxBody is the default of Consul's txn_max_req_len, in bytes: it bounds
	// the whole body, in which values are in base64 and so a third longer.
	maxBody = 512 << 10
)

// Apply makes all the writes in one transaction. If the answer is lost, they may or may not
// have been made; the caller repeats its change.
func (s *Store) Apply(ctx context.Context, writes []allocator.Write) error {
	if len(writes) == 0 {
		return nil
	}
	body, err := s.encode(writes)
	if err != nil {
		return err
	}
	return s.do(ctx, answerTime, func(ctx context.Context) error {
		// The client's own Txn would drop the status of a failure.
		_, err := s.client.Raw().Write("/v1/txn", body, nil, (&api.WriteOptions{}).WithContext(ctx))
		if status, ok := errors.AsType[api.StatusError](err); ok && status.Code == http.StatusConflict {
			return s.refused(status.Body, writes)
		}
		if err != nil {
			return s.explain("writing", writes[0].Key, err)
		}
		return nil
	})
}

// encode returns the body of the transaction, or an error if Consul would reject it.
func (s *Store) encode(writes []allocator.Write) (json.RawMessage, error) {
	var ops api.TxnOps
	for _, write := range writes {
		for _, op := range operations(write) {
			op.Key, op.Index = s.prefix+write.Key, write.Version
			op.Namespace, op.Partition = s.namespace, s.partition
			ops = append(ops, &api.TxnOp{KV: op})
		}
	}
	if len(ops) > maxOperations {
		return nil, fmt.Errorf("transaction of %d operations, Consul accepts %d: %w", len(ops), maxOperations, allocator.ErrTooLarge)
	}
	body, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encoding a transaction: %w", err)
	}
	if size := len(body) + len("\n"); size > maxBody {
		return nil, fmt.Errorf("change of %s and %d more keys is %d bytes long, Consul accepts %d: %w",
			writes[0].Key, len(writes)-1, size, maxBody, allocator.ErrTooLarge)
	}
	return body, nil
}

// operations returns the operations of a write. Consul's delete-cas succeeds for a missing
// key, so the index is checked first.
func operations(write allocator.Write) []*api.KVTxnOp {
	switch {
	case write.Value != nil:
		return []*api.KVTxnOp{{Verb: api.KVCAS, Value: write.Value}}
	case write.Version == 0:
		return []*api.KVTxnOp{{Verb: api.KVCheckNotExists}}
	default:
		return []*api.KVTxnOp{{Verb: api.KVCheckIndex}, {Verb: api.KVDeleteCAS}}
	}
}

// refused explains a transaction that was rolled back: a key changed, or the
// token may not write it.
func (s *Store) refused(body string, writes []allocator.Write) error {
	var answer api.TxnResponse
	if err := json.Unmarshal([]byte(body), &answer); err != nil || len(answer.Errors) == 0 {
		return fmt.Errorf("Consul at %s rolled back a write of %s: %w", s.address, writes[0].Key, allocator.ErrConflict)
	}
	what := answer.Errors[0].What
	if strings.Contains(what, "Permission denied") {
		return s.denied("writing", writes[0].Key, what)
	}
	return fmt.Errorf("%s: %w", what, allocator.ErrConflict)
}
