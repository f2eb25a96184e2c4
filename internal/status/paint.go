// Copyright the nomad-gpu-mem authors
// SPDX-License-Identifier: MPL-2.0

package status

import (
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/mattn/go-runewidth"
	"github.com/muesli/termenv"
	"golang.org/x/term"
)

// pipedWidth is the width of output that is not a terminal.
const pipedWidth = 80

// hues are the colours of claims, as numbers of the 256-colour palette, in an
// order that keeps neighbours apart. Black letters are readable on all.
var hues = [...]int{114, 215, 111, 180, 176, 80, 222, 174, 147, 150, 209, 117}

// paint is what the output can show.
type paint struct {
	width      int
	profile    termenv.Profile
	isTerminal bool
}

// clearScreen clears the terminal and moves the cursor to the top. The scrollback stays.
const clearScreen = "\x1b[H\x1b[2J"

// paintFor returns what w can show. Without a terminal, and if NO_COLOR is set, there are
// no colours.
func paintFor(w io.Writer, width int) paint {
	p := paint{width: pipedWidth, profile: termenv.Ascii}
	if file, ok := w.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		p.isTerminal = true
		p.profile = termenv.NewOutput(file).EnvColorProfile()
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil && columns > 0 {
			p.width = columns
		}
	}
	if width > 0 {
		p.width = width
	}
	return p
}

func (p paint) bold(s string) string { return p.profile.String(s).Bold().String() }
func (p paint) dim(s string) string  { return p.profile.String(s).Faint().String() }
func (p paint) warn(s string) string { return p.profile.String(s).Foreground(p.ansi(3)).String() }
func (p paint) bad(s string) string  { return p.profile.String(s).Foreground(p.ansi(1)).Bold().String() }

func (p paint) ansi(n int) termenv.Color { return p.profile.Color(strconv.Itoa(n)) }

// unit paints cells that all show the same unit.
func (p paint) unit(kind rune, cells string) string {
	switch kind {
	case freeUnit:
		return p.dim(cells)
	case unavailableUnit:
		return p.bad(cells)
	default:
		hue := p.ansi(hues[int(kind)%len(hues)])
		return p.profile.String(cells).Background(hue).Foreground(p.ansi(16)).String()
	}
}

// cells paints a bar, one run of equal cells at a time. Marks that are two columns wide are
// drawn as '+'; the legend shows them.
func (p paint) cells(bar []rune) string {
	var b strings.Builder
	for i := 0; i < len(bar); {
		run := i
		for run < len(bar) && bar[run] == bar[i] {
			run++
		}
		drawn := string(bar[i])
		if columns(drawn) != 1 {
			drawn = "+"
		}
		b.WriteString(p.unit(bar[i], strings.Repeat(drawn, run-i)))
		i = run
	}
	return b.String()
}

// narrow counts characters of ambiguous width, which the bars use, as one column in every
// locale.
func narrow() *runewidth.Condition { return &runewidth.Condition{StrictEmojiNeutral: true} }

// columns returns how wide s is on a terminal.
func columns(s string) int { return narrow().StringWidth(s) }

// fit makes s exactly width columns wide: padded, or cut with an ellipsis.
func fit(s string, width int) string {
	return narrow().FillRight(narrow().Truncate(s, width, "…"), width)
}

// fitRight is fit, right-aligned.
func fitRight(s string, width int) string {
	return narrow().FillLeft(narrow().Truncate(s, width, "…"), width)
}

// fitMiddle is fit that cuts in the middle: both ends distinguish paths.
func fitMiddle(s string, width int) string {
	if columns(s) <= width {
		return fit(s, width)
	}
	tail := (width - 1) * 2 / 5
	end := narrow().TruncateLeft(s, columns(s)-tail, "")
	return fit(narrow().Truncate(s, width-columns(end), "…")+end, width)
}
