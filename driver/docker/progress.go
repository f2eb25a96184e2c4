// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"fmt"
	"sync"
	"time"

	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/go-units"
)

// progress sums up the messages of a pull. It is safe for concurrent use.
type progress struct {
	begun time.Time

	mu     sync.Mutex
	layers map[string]layer
}

// layer is how far one layer is. Sizes are in bytes; 0 until known.
type layer struct {
	status        string
	current, size int64
}

func newProgress(now time.Time) *progress {
	return &progress{begun: now, layers: map[string]layer{}}
}

// add takes one message in. Messages without sizes (about the tag, the digest) are not about a layer.
func (p *progress) add(m jsonmessage.JSONMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, known := p.layers[m.ID]
	switch m.Status {
	case "Pulling fs layer", "Waiting", "Already exists":
		p.layers[m.ID] = layer{status: m.Status}
	case "Downloading":
		if m.Progress != nil {
			p.layers[m.ID] = layer{m.Status, m.Progress.Current, m.Progress.Total}
		}
	case "Verifying Checksum", "Download complete", "Extracting", "Pull complete":
		if known {
			p.layers[m.ID] = layer{m.Status, was.size, was.size}
		}
	}
}

// at says for example "Pulled 3/7 (1.2GB/3.4GB) layers: 2 waiting/2 pulling - est 40s remaining". The estimate takes the
// speed so far for that to come; there is none before the sizes are known.
func (p *progress) at(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var done, waiting, pulling int
	var current, size int64
	for _, l := range p.layers {
		current += l.current
		size += l.size
		switch l.status {
		case "Already exists", "Pull complete":
			done++
		case "Downloading", "Extracting":
			pulling++
		default:
			waiting++
		}
	}
	text := fmt.Sprintf("Pulled %d/%d (%s/%s) layers: %d waiting/%d pulling",
		done, len(p.layers), units.HumanSize(float64(current)), units.HumanSize(float64(size)), waiting, pulling)
	if current == 0 || size <= current {
		return text
	}
	left := time.Duration(float64(now.Sub(p.begun)) * float64(size-current) / float64(current))
	return fmt.Sprintf("%s - est %s remaining", text, left.Round(time.Second))
}
