package bench

import (
	"encoding/json"
	"fmt"
	"math"
)

// Interval is a ratio with the 95 % interval of its mean: a t-interval of the logarithms, because twice as fast and half as
// fast are equally far from 1. Of one round it is 0 to infinity.
type Interval struct{ Low, Mean, High float64 }

// student are the 97.5 % quantiles of Student's distribution, from one degree of freedom on; further on it is near 2.
var student = []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09}

func intervalOf(ratios []float64) Interval {
	n := float64(len(ratios))
	var sum, squares float64
	for _, r := range ratios {
		sum += math.Log(r)
	}
	mean := sum / n
	for _, r := range ratios {
		squares += (math.Log(r) - mean) * (math.Log(r) - mean)
	}
	if len(ratios) < 2 {
		return Interval{0, math.Exp(mean), math.Inf(1)}
	}
	t := 2.09
	if len(ratios)-2 < len(student) {
		t = student[len(ratios)-2]
	}
	half := t * math.Sqrt(squares/(n-1)/n)
	return Interval{math.Exp(mean - half), math.Exp(mean), math.Exp(mean + half)}
}

// String is the mean with its bounds; empty if there is no ratio.
func (i *Interval) String() string {
	if i == nil {
		return ""
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", i.Mean, i.Low, i.High)
}

// MarshalJSON leaves the bounds out where there are none.
func (i Interval) MarshalJSON() ([]byte, error) {
	if math.IsInf(i.High, 1) {
		return json.Marshal(map[string]float64{"mean": i.Mean})
	}
	return json.Marshal(map[string]float64{"low": i.Low, "mean": i.Mean, "high": i.High})
}
