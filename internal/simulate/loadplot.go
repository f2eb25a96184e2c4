// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// WriteLoadPlot draws two plots over the load, one above the other: the share in use, and
// the admitted share of the tasks with the most GPUs. Each scheduler has a line, the mean of
// its seeds. The rows must be of one cluster; the file's name must end in .png or .svg.
func WriteLoadPlot(path, title string, rows []Row) error {
	byName, names := map[string][]Row{}, []string{}
	for _, r := range rows {
		if _, ok := r.Case.Test.(Departures); !ok || r.Case.Sample != rows[0].Case.Sample {
			return errors.New("a plot over the load needs tests with departures, on one shape of cluster")
		}
		if !slices.Contains(names, r.Name) {
			names = append(names, r.Name)
		}
		byName[r.Name] = append(byName[r.Name], r)
	}
	use := newLoadPlot(title, "GPU capacity in use (%)")
	large := newLoadPlot("", "admitted of tasks with 5 GPUs and more (%)")
	for i, name := range names {
		const inUse, admitted = 0, 2 + int(ManyGPUs) // see Departures.Figures
		for p, figure := range map[*plot.Plot]int{use: inUse, large: admitted} {
			line, err := loadLine(byName[name], figure)
			if err != nil {
				return err
			}
			style(line, i)
			p.Add(line)
			p.Legend.Add(name, line)
		}
	}
	return saveAbove(path, use, large)
}

func newLoadPlot(title, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "GPU capacity asked for on average (%)"
	p.Y.Label.Text = y
	p.Legend.ThumbnailWidth = vg.Centimeter
	p.Legend.Left = true
	p.Add(plotter.NewGrid())
	return p
}

// loadLine is a figure's mean over the seeds, by load.
func loadLine(rows []Row, figure int) (*plotter.Line, error) {
	var points plotter.XYs
	for _, r := range rows {
		if mean, _ := r.Mean(figure); !math.IsNaN(mean) {
			points = append(points, plotter.XY{X: 100 * r.Case.Test.(Departures).Load, Y: mean})
		}
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(math.Copysign(1, a.X-b.X)) })
	return plotter.NewLine(points)
}

// saveAbove writes one plot above the other.
func saveAbove(path string, above, below *plot.Plot) error {
	canvas, err := draw.NewFormattedCanvas(plotWidth, 2*plotHeight, strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 2, Cols: 1}
	placed := plot.Align([][]*plot.Plot{{above}, {below}}, tiles, draw.New(canvas))
	above.Draw(placed[0][0])
	below.Draw(placed[1][0])
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}
