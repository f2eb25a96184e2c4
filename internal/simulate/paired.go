// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"
)

// Minus returns the mean difference of a figure from another scheduler's, seed by seed, and
// its standard error. The same seed gives the same cluster and arrivals, so common effects
// cancel out. Seeds without the figure do not count.
func (r Row) Minus(other Row, figure int) (mean, standardError float64) {
	var differences []float64
	for i, result := range r.Results {
		if d := result.Figures[figure] - other.Results[i].Figures[figure]; !math.IsNaN(d) {
			differences = append(differences, d)
		}
	}
	mean, deviation := spread(differences)
	return mean, deviation / math.Sqrt(float64(len(differences)))
}

// spread returns the mean and the standard deviation of values.
func spread(values []float64) (mean, deviation float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += v / n
	}
	if n == 0 {
		mean = math.NaN()
	}
	for _, v := range values {
		deviation += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(deviation / max(1, n-1))
}

// WriteDifferences prints how far every scheduler is from the first one in the
// same test: the mean of paired differences and its standard error.
func WriteDifferences(w io.Writer, figures []string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	writeHead(t, "difference", figures)
	var first Row
	for _, r := range rows {
		if r.Test != first.Test || first.Name == "" {
			first = r
			continue
		}
		fmt.Fprintf(t, "%s - %s\t%s", r.Name, first.Name, r.Test)
		for i := range figures {
			mean, standardError := r.Minus(first, i)
			writeFigure(t, "\t%+.2f ± %.2f", mean, standardError)
		}
		fmt.Fprintf(t, "\t%d\n", len(r.Seeds))
	}
	return t.Flush()
}
