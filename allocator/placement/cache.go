// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package placement

// maxClasses bounds the cache: 12 bytes a node and class.
const maxClasses = 512

// cache has the scores of every node for the most recent kinds of requests.
type cache struct {
	classes map[string]*scored
	clock   uint64 // counts uses
	key     []byte
}

// scored is a kind of request with the nodes' scores.
type scored struct {
	class
	scores  []int64  // by position of the node
	version []uint32 // of the node that the score is of
	losses  []uint16 // the room that the place takes; see losses.go
	usedAt  uint64
}

func newCache() cache { return cache{classes: map[string]*scored{}} }

// clear forgets everything.
func (c *cache) clear() { clear(c.classes) }

// of returns the scores for a request, empty if its kind is new.
func (c *cache) of(r Request, kinds []kind) *scored {
	if !r.cacheable() {
		return &scored{class: newClass(r, kinds)}
	}
	c.clock++
	c.key = r.appendKey(c.key[:0])
	s, known := c.classes[string(c.key)]
	if !known {
		c.evict()
		s = &scored{class: newClass(r, kinds)}
		c.classes[string(c.key)] = s
	}
	s.usedAt = c.clock
	return s
}

// evict drops the least recently used kind of request if the cache is full.
func (c *cache) evict() {
	if len(c.classes) < maxClasses {
		return
	}
	oldest, at := "", c.clock
	for key, s := range c.classes {
		if s.usedAt < at {
			oldest, at = key, s.usedAt
		}
	}
	delete(c.classes, oldest)
}
