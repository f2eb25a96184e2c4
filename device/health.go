package device

import "nomad-gpu-mem/internal/nvml"

// defect says why no task should get a GPU that can be read well, or is empty.
// It is asked anew with each reading, also the first: restarting the plugin
// heals no GPU, resetting the GPU does.
//
// A GPU that replaces defective rows of its memory contains most errors: the
// count alone condemns it no longer.
func defect(g nvml.GPU) string {
	switch {
	case isTrue(g.RetiredPagesPending):
		return "a defective memory page waits to be retired; reset the GPU"
	case g.Rows != nil && g.Rows.Failed:
		return "a defective memory row could not be replaced; the GPU needs service"
	case g.Rows != nil && g.Rows.Pending:
		return "a defective memory row waits to be replaced; reset the GPU"
	case g.Rows == nil && g.UncorrectedECC != nil && *g.UncorrectedECC > 0:
		return "uncorrected memory errors since the driver was loaded; reset the GPU"
	}
	return ""
}

func isTrue(b *bool) bool { return b != nil && *b }
