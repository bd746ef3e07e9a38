package admin

import (
	"time"

	"github.com/settlemq/settle/idemstore"
)

// activity is what began in the last hour, and where it stands now.
type activity struct {
	ReachSeconds float64  `json:"reach_seconds"` // how far back it looks: an hour, or less if very much began
	Minutes      []minute `json:"minutes"`       // the latest first; minutes in which nothing began are left out
}

// minute is one bar.
type minute struct {
	Ago      int `json:"minutes_ago"`
	Done     int `json:"done"`
	Failed   int `json:"failed"`
	Open     int `json:"open"`
	InReview int `json:"needs_review"`
}

func (m minute) total() int { return m.Done + m.Failed + m.Open + m.InReview }

func activityOf(a idemstore.Activity) activity {
	out := activity{ReachSeconds: a.Since.Seconds(), Minutes: []minute{}}
	for _, m := range a.Minutes {
		out.Minutes = append(out.Minutes, minute{m.Ago, m.Done, m.Failed, m.Open, m.InReview})
	}
	return out
}

// Short says how far back it looks, where that is not the whole hour.
func (a activity) Short() time.Duration {
	if reach := time.Duration(a.ReachSeconds * float64(time.Second)); reach < time.Hour {
		return reach
	}
	return 0
}

// The drawing, in its own units: a minute is ten wide.
const (
	minutesDrawn = 60
	barStep      = 10
	barWidth     = 8
	chartHeight  = 100
)

// bar is a part of a bar of the chart, by what became of it.
type bar struct {
	X, Y, W, H int
	Class      string
}

// Most is the highest number of tasks that began in one minute.
func (a activity) Most() (most int) {
	for _, m := range a.Minutes {
		most = max(most, m.total())
	}
	return most
}

// Bars are the parts of the chart, the latest minute at the right. What is there at all is at least one unit high.
func (a activity) Bars() (bars []bar) {
	most := a.Most()
	for _, m := range a.Minutes {
		if m.Ago < 0 || m.Ago >= minutesDrawn {
			continue
		}
		y := chartHeight
		for _, p := range []struct {
			n     int
			class string
		}{{m.Done, "done"}, {m.Open, "open"}, {m.InReview, "review"}, {m.Failed, "failed"}} {
			if p.n == 0 {
				continue
			}
			h := max(p.n*chartHeight/most, 1)
			y -= h
			bars = append(bars, bar{(minutesDrawn - 1 - m.Ago) * barStep, max(y, 0), barWidth, h, p.class})
		}
	}
	return bars
}
