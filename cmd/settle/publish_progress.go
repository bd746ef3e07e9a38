package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows a person how far a publish is: lines and rate, and the time left where the size of the input is
// known. A nil progress shows nothing. Nobody can be told that it cannot be written, so errors are dropped.
type progress struct {
	bar   *progressbar.ProgressBar
	lines int
	began time.Time
}

const progressEvery = 100 * time.Millisecond // between two pictures; each costs a write to the terminal

// newProgress makes a progress on a terminal for so many bytes of input, or -1 if nobody knows how many there are.
func newProgress(terminal io.Writer, total int64) *progress {
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(terminal), progressbar.OptionSetDescription("publishing"), progressbar.OptionSetWidth(24),
		progressbar.OptionThrottle(progressEvery), progressbar.OptionClearOnFinish(),
		progressbar.OptionSetPredictTime(total > 0), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetSpinnerChangeInterval(0)) // otherwise a goroutine of its own would draw
	return &progress{bar: bar, began: time.Now()}
}

// done counts a line of so many bytes, its end included.
func (p *progress) done(size int) {
	if p == nil {
		return
	}
	p.lines++
	p.bar.Describe(fmt.Sprintf("%d lines, %.0f/s", p.lines, float64(p.lines)/max(time.Since(p.began).Seconds(), progressEvery.Seconds())))
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
