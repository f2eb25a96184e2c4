// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package simulate

import (
	"errors"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// The size of a plot, and the share of arrivals at which it begins: before the
// cluster fills, all schedulers are alike.
const (
	plotWidth  = 18 * vg.Centimeter
	plotHeight = 11 * vg.Centimeter
	plotFrom   = 0.7
)

// lineColors distinguish up to eight schedulers, also for colour-blind readers (Okabe and
// Ito).
var lineColors = []color.Color{
	color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 213, G: 94, B: 0, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255}, color.RGBA{R: 204, G: 121, B: 167, A: 255},
	color.RGBA{R: 86, G: 180, B: 233, A: 255}, color.RGBA{R: 230, G: 159, B: 0, A: 255},
	color.RGBA{R: 148, G: 148, B: 32, A: 255}, color.RGBA{R: 0, G: 0, B: 0, A: 255},
}

// WritePlot draws the allocated share against the arrived share. Each scheduler has a line,
// the mean of its seeds. The file's name must end in .png or .svg.
func WritePlot(path, title string, rows []Row) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Label.Text = "GPU capacity asked for by tasks that arrived (%)"
	p.Y.Label.Text = "GPU capacity in use (%)"
	p.Legend.ThumbnailWidth = vg.Centimeter
	p.Add(plotter.NewGrid())
	for i, r := range rows {
		points := r.meanCurve()
		if len(points) == 0 {
			return errors.New("no curve to draw: only the test without departures has one")
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		style(line, i)
		p.Add(line)
		p.Legend.Add(r.Name, line)
	}
	return p.Save(plotWidth, plotHeight, path)
}

// style sets colour and dashes of the i-th scheduler's line.
func style(line *plotter.Line, i int) {
	line.Color = lineColors[i%len(lineColors)]
	line.Width = vg.Points(1.2)
	if i >= len(lineColors) {
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
}

// meanCurve is the mean over the seeds where all of them have a point.
func (r Row) meanCurve() plotter.XYs {
	var sum plotter.XYs
	for i, result := range r.Results {
		thin := result.Curve.thin()
		if i == 0 {
			sum = make(plotter.XYs, len(thin))
		}
		sum = sum[:min(len(sum), len(thin))]
		for j := range sum {
			sum[j].X = 100 * thin[j].Arrived
			sum[j].Y += 100 * thin[j].Allocated / float64(len(r.Results))
		}
	}
	for len(sum) > 1 && sum[0].X < 100*plotFrom {
		sum = sum[1:]
	}
	return sum
}
