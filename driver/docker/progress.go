package docker

import (
	"fmt"
	"sync"

	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/go-units"
)

// progress sums up the messages of a pull. It is safe for concurrent use.
type progress struct {
	mu     sync.Mutex
	layers map[string]layer
}

// layer is how far one layer is. Sizes are in bytes; 0 until known.
type layer struct {
	status        string
	current, size int64
}

func newProgress() *progress {
	return &progress{layers: map[string]layer{}}
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

// String says for example "3/7 layers, 1.2GB of 3.4GB, 2 waiting, 1 downloading, 1 extracting".
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var done, waiting, downloading, extracting int
	var current, size int64
	for _, l := range p.layers {
		current += l.current
		size += l.size
		switch l.status {
		case "Already exists", "Pull complete":
			done++
		case "Downloading":
			downloading++
		case "Extracting":
			extracting++
		default:
			waiting++
		}
	}
	return fmt.Sprintf("%d/%d layers, %s of %s, %d waiting, %d downloading, %d extracting",
		done, len(p.layers), units.HumanSize(float64(current)), units.HumanSize(float64(size)),
		waiting, downloading, extracting)
}
