package bench

import (
	"math"
	"testing"
)

func TestTheIntervalOfARatio(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ratios []float64
		want   string
	}{
		{[]float64{1, 1, 1, 1}, "1.000 [1.000, 1.000]"},
		{[]float64{0.5, 2}, "1.000 [0.000, 6700.254]"}, // two rounds say nothing
		{[]float64{0.95, 0.97, 0.96, 0.96, 0.98}, "0.964 [0.950, 0.978]"},
		{[]float64{0.9}, "0.900 [0.000, +Inf]"},
	} {
		if i := intervalOf(c.ratios); i.String() != c.want {
			t.Errorf("%v: %s, want %s", c.ratios, i.String(), c.want)
		}
	}
}

// However many rounds: the interval of the same spread becomes smaller.
func TestMoreRoundsSayMore(t *testing.T) {
	t.Parallel()
	var ratios []float64
	last := math.Inf(1)
	for range 20 {
		ratios = append(ratios, 0.9, 1.1)
		if i := intervalOf(ratios); i.High-i.Low >= last {
			t.Fatalf("%d rounds: %v", len(ratios), i)
		} else {
			last = i.High - i.Low
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0.00", 1.234: "1.23", 99.99: "99.99", 100.4: "100", 10_734: "10734"} {
		if got := Number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
