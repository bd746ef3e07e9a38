package lab

import "regexp"

// The colors of a terminal, as SGR parameters.
const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

var escape = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (p printer) paint(color, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
