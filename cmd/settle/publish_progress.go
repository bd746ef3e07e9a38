package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows a person how far a command is: how many things are done and at which rate, and the time left where it is
// known how much there is. A nil progress shows nothing. Nobody can be told that it cannot be written, so errors are dropped.
type progress struct {
	bar   *progressbar.ProgressBar
	noun  string // what is counted
	n     int
	began time.Time
}

const progressEvery = 100 * time.Millisecond // between two pictures; each costs a write to the terminal

// newProgress makes a progress on a terminal for so many bytes of input, or -1 if nobody knows how many there are.
func newProgress(terminal io.Writer, total int64) *progress {
	return drawProgress(terminal, total, "publishing", "lines")
}

func drawProgress(terminal io.Writer, total int64, doing, noun string) *progress {
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(terminal), progressbar.OptionSetDescription(doing), progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(progressEvery), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(total > 0), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetSpinnerChangeInterval(0)) // otherwise a goroutine of its own would draw
	return &progress{bar: bar, noun: noun, began: time.Now()}
}

// done counts one thing. size is its part of the total: of a line its bytes, its end included.
func (p *progress) done(size int) {
	if p == nil {
		return
	}
	p.n++
	p.bar.Describe(fmt.Sprintf("%d %s, %.0f/s", p.n, p.noun, float64(p.n)/max(time.Since(p.began).Seconds(), progressEvery.Seconds())))
	_ = p.bar.Add(size)
}

// clear makes room for a line of text; the next picture is drawn below it.
func (p *progress) clear() {
	if p != nil {
		_ = p.bar.Clear()
	}
}

// end takes the picture away.
func (p *progress) end() {
	if p != nil {
		_ = p.bar.Finish()
	}
}

// sizeOf is how many bytes the inputs have together, or -1 where one of them is no regular file.
func sizeOf(inputs []input) (total int64) {
	for _, in := range inputs {
		f, ok := in.from.(*os.File)
		if !ok {
			return -1
		}
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return -1
		}
		total += info.Size()
	}
	return total
}
