package admin

import (
	"time"

	"github.com/settlemq/settle/idemstore"
)

// cameTo is what workers came to.
type cameTo struct {
	Finished    int `json:"finished"`
	Failed      int `json:"failed"`
	NeedsReview int `json:"needs_review"`
	Unknown     int `json:"unknown"`
	Duplicates  int `json:"duplicates"` // deliveries that were stopped
}

func (c *cameTo) add(t idemstore.Tally) {
	c.Finished += int(t.Finished)
	c.Failed += int(t.Failed)
	c.NeedsReview += int(t.NeedsReview)
	c.Unknown += int(t.Unknown)
	c.Duplicates += int(t.Duplicates)
}

// ended is how many attempts came to something.
func (c cameTo) ended() int { return c.Finished + c.Failed + c.NeedsReview + c.Unknown }

// chart is what workers came to in the last stretches of time.
type chart struct {
	Name       string  `json:"-"`
	BarSeconds float64 `json:"bar_seconds"`
	Bars       []bar   `json:"bars"` // the latest first; those in which nothing was counted are left out
	drawn      int     // stretches
}

type bar struct {
	Ago int `json:"ago"` // stretches: 0 is the one up to now
	cameTo
}

// chartOf sums up the bars of all kinds.
func chartOf(name string, stretch time.Duration, n int, of []idemstore.Bar) chart {
	c := chart{Name: name, BarSeconds: stretch.Seconds(), Bars: []bar{}, drawn: n}
	for _, b := range of {
		if last := len(c.Bars) - 1; last < 0 || c.Bars[last].Ago != b.Ago {
			c.Bars = append(c.Bars, bar{Ago: b.Ago})
		}
		c.Bars[len(c.Bars)-1].add(b.Tally)
	}
	return c
}

// Most is the highest number of attempts that ended in one bar.
func (c chart) Most() (most int) {
	for _, b := range c.Bars {
		most = max(most, b.ended())
	}
	return most
}

// Empty reports whether no attempt ended.
func (c chart) Empty() bool { return c.Most() == 0 }

// Began is how long ago the chart begins.
func (c chart) Began() string { return texts["began_"+c.Name] }

// Title says what it shows.
func (c chart) Title() string { return texts["chart_"+c.Name] }

// The drawing, in its own units.
const (
	chartWidth  = 960
	chartHeight = 100
)

// part is a part of a bar of the drawing, by what became of it.
type part struct {
	X, Y, W, H int
	Class      string
}

// Parts are the drawing, the latest bar at the right. What is there at all is at least one unit high.
func (c chart) Parts() (parts []part) {
	most, step := c.Most(), chartWidth/c.drawn
	for _, b := range c.Bars {
		y := chartHeight
		for _, p := range []struct {
			n     int
			class string
		}{{b.Finished, "done"}, {b.Unknown, "open"}, {b.NeedsReview, "review"}, {b.Failed, "failed"}} {
			if p.n == 0 || b.Ago >= c.drawn {
				continue
			}
			h := max(p.n*chartHeight/most, 1)
			y -= h
			parts = append(parts, part{(c.drawn - 1 - b.Ago) * step, max(y, 0), step * 4 / 5, h, p.class})
		}
	}
	return parts
}

// service is how a kind was served in the last day.
type service struct {
	Kind             string   `json:"kind"`
	SeenSeconds      float64  `json:"seen_seconds"` // since a worker last said something of it
	RecoveredSeconds *float64 `json:"recovered_seconds"`
	BreakerOpen      bool     `json:"breaker_open"`
	Hour             cameTo   `json:"hour"`
	Day              cameTo   `json:"day"`
}

// silentAfter is how long workers may say nothing of a kind that they serve: they say something every ten seconds.
const silentAfter = time.Minute

// Silent reports whether no worker serves it, as far as can be seen.
func (s service) Silent() bool { return s.SeenSeconds > silentAfter.Seconds() }

// Seen is for how long workers have said nothing of it.
func (s service) Seen() time.Duration { return inSeconds(s.SeenSeconds) }

// Recovered is since when recovery has not chosen among its tasks; 0: it did not in the last day.
func (s service) Recovered() time.Duration {
	if s.RecoveredSeconds == nil {
		return 0
	}
	return max(inSeconds(*s.RecoveredSeconds), 1)
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// servicesOf adds to each kind what came of it.
func servicesOf(kinds []idemstore.Served, hour, day []idemstore.Bar) []service {
	all := make([]service, 0, len(kinds))
	for _, k := range kinds {
		s := service{Kind: k.Kind, SeenSeconds: k.Seen.Seconds(), BreakerOpen: k.BreakerOpen, Hour: sumOf(k.Kind, hour), Day: sumOf(k.Kind, day)}
		if k.Recovered != nil {
			ago := k.Recovered.Seconds()
			s.RecoveredSeconds = &ago
		}
		all = append(all, s)
	}
	return all
}

func sumOf(kind string, bars []idemstore.Bar) (sum cameTo) {
	for _, b := range bars {
		if b.Kind == kind {
			sum.add(b.Tally)
		}
	}
	return sum
}
