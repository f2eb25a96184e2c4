// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"text/tabwriter"
)

// WriteTable prints every scheduler's figures: the mean over the seeds and the
// standard deviation.
func WriteTable(w io.Writer, figures []string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	writeHead(t, "scheduler", figures)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s", r.Name, r.Test)
		for i := range figures {
			mean, deviation := r.Mean(i)
			writeFigure(t, "\t%.2f ± %.2f", mean, deviation)
		}
		fmt.Fprintf(t, "\t%d\n", len(r.Seeds))
	}
	return t.Flush()
}

func writeHead(w io.Writer, first string, figures []string) {
	fmt.Fprintf(w, "%s\ttest", first)
	for _, figure := range figures {
		fmt.Fprintf(w, "\t%s", figure)
	}
	fmt.Fprintln(w, "\tseeds")
}

// writeFigure prints a figure that no run has as a dash.
func writeFigure(w io.Writer, format string, mean, around float64) {
	if math.IsNaN(mean) {
		fmt.Fprint(w, "\t-")
		return
	}
	fmt.Fprintf(w, format, mean, around)
}

// curveStep is the distance of the points of a curve that are written or drawn,
// as a share of the capacity.
const curveStep = 0.005

// WriteCSV writes every run: its figures, then its curve, if any, with a row for each half
// percent of the capacity that arrived. All values are percent: curves and use of the
// capacity, admitted figures of what arrived. Missing figures are left out.
func WriteCSV(w io.Writer, figures []string, rows []Row) error {
	out := csv.NewWriter(w)
	write := func(r Row, i int, what string, arrived, value float64) {
		_ = out.Write([]string{ // out.Error returns it
			r.Name, r.Test, strconv.FormatUint(r.Seeds[i], 10), what, percent(arrived), percent(value),
		})
	}
	_ = out.Write([]string{"scheduler", "test", "seed", "figure", "arrived", "value"}) // out.Error returns it
	for _, r := range rows {
		for i, result := range r.Results {
			for f, value := range result.Figures {
				if !math.IsNaN(value) {
					write(r, i, figures[f], 0, value)
				}
			}
			for _, p := range result.Curve.thin() {
				write(r, i, "curve", 100*p.Arrived, 100*p.Allocated)
			}
		}
	}
	out.Flush()
	return out.Error()
}

func percent(value float64) string { return strconv.FormatFloat(value, 'f', 3, 64) }

// thin returns the curve at whole steps.
func (c Curve) thin() Curve {
	var thin Curve
	if len(c) == 0 {
		return nil
	}
	last := c[len(c)-1].Arrived
	i := 0
	for step := 1; float64(step)*curveStep <= last; step++ {
		arrived := float64(step) * curveStep
		for i+1 < len(c) && c[i+1].Arrived <= arrived {
			i++
		}
		thin = append(thin, Point{Arrived: arrived, Allocated: c[i].Allocated})
	}
	return thin
}
