package simulate

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// WriteTable prints every scheduler's figures: the mean over the seeds and the
// standard deviation.
func WriteTable(w io.Writer, figures []string, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "scheduler")
	for _, figure := range figures {
		fmt.Fprintf(t, "\t%s", figure)
	}
	fmt.Fprintln(t, "\tseeds")
	for _, r := range rows {
		fmt.Fprint(t, r.Name)
		for i := range figures {
			mean, deviation := r.Mean(i)
			fmt.Fprintf(t, "\t%.2f ± %.2f", mean, deviation)
		}
		fmt.Fprintf(t, "\t%d\n", len(r.Seeds))
	}
	return t.Flush()
}

// curveStep is the distance of the points of a curve that are written or drawn,
// as a share of the capacity.
const curveStep = 0.005

// WriteCSV writes every run: its figures, and then its curve, if it has one,
// with a row for each half percent of the capacity that arrived. All shares are
// percent of the capacity.
func WriteCSV(w io.Writer, figures []string, rows []Row) error {
	out := csv.NewWriter(w)
	write := func(r Row, i int, what string, arrived, allocated float64) {
		_ = out.Write([]string{ // Error tells
			r.Name, strconv.FormatUint(r.Seeds[i], 10), what, percent(arrived), percent(allocated),
		})
	}
	_ = out.Write([]string{"scheduler", "seed", "figure", "arrived", "allocated"}) // Error tells
	for _, r := range rows {
		for i, result := range r.Results {
			for f, value := range result.Figures {
				write(r, i, figures[f], 0, value)
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
