package bench

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Measures of a plot, in pixels.
const (
	plotWidth  = 900
	plotLabels = 330 // for the names, left of the bars
	plotBars   = 400
	plotRow    = 24
	plotHead   = 34
)

// Plot draws the medians as bars, as an SVG, with a line from the slowest to the fastest round. Bars of one table and unit
// have one scale.
func (r *Report) Plot(out io.Writer) error {
	var body strings.Builder
	y := 10
	for _, table := range r.tables() {
		for _, unit := range r.units(table) {
			y = r.plotGroup(&body, y, table, unit)
		}
	}
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
%s<text x="10" y="%d" fill="#666">%s</text>
</svg>
`, plotWidth, y+30, body.String(), y+18, html.EscapeString(fmt.Sprintf("%d jobs in each of %d rounds, %d slots, %d processors, PostgreSQL %s",
		r.Jobs, r.Rounds, r.Slots, r.CPUs, r.Postgres)))
	return err
}

// units are those of a table.
func (r *Report) units(table string) (units []string) {
	seen := map[string]bool{}
	for _, f := range r.Figures {
		if f.Table == table && !seen[f.Unit] {
			seen[f.Unit] = true
			units = append(units, f.Unit)
		}
	}
	return units
}

// plotGroup draws the bars of a table that share a unit, and returns where the next group begins.
func (r *Report) plotGroup(out io.Writer, y int, table, unit string) int {
	var most float64
	for _, f := range r.Figures {
		if f.Table == table && f.Unit == unit {
			most = max(most, f.Max)
		}
	}
	fmt.Fprintf(out, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y+20, html.EscapeString(table+", "+unit))
	y += plotHead
	for _, f := range r.Figures {
		if f.Table == table && f.Unit == unit {
			plotBar(out, y, f, plotBars/max(most, 1e-9))
			y += plotRow
		}
	}
	return y
}

// plotBar draws one figure; scale is pixels per unit.
func plotBar(out io.Writer, y int, f Figure, scale float64) {
	middle := y + plotRow/2
	text := Number(f.Median)
	if f.Ratio != nil {
		text += fmt.Sprintf("  (× %.2f)", f.Ratio.Mean)
	}
	at := func(v float64) float64 { return plotLabels + v*scale }
	fmt.Fprintf(out, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotLabels-8, middle+4, html.EscapeString(f.Contestant))
	fmt.Fprintf(out, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="#4a7fb5"/>`+"\n", plotLabels, y+4, f.Median*scale, plotRow-8)
	fmt.Fprintf(out, `<path d="M%.1f %dH%.1fM%.1f %dv8M%.1f %dv8" stroke="black" fill="none"/>`+"\n",
		at(f.Min), middle, at(f.Max), at(f.Min), middle-4, at(f.Max), middle-4)
	fmt.Fprintf(out, `<text x="%.1f" y="%d">%s</text>`+"\n", at(f.Max)+8, middle+4,
		html.EscapeString(text))
}
