package consumer

import (
	"strings"
	"testing"
	"time"
)

var signalNames = map[string]signal{"nothing": signalNone, "works": signalWorks, "fails": signalFails, "unreached": signalUnreached,
	"bars": signalBarred, "rebuffs": signalRebuffed, "answers": signalAnswered, "mute": signalMute}

// A circuit of limit 3 that tries once in 10 s, and once in 2 s where that comes to a look-up. Each step is a signal, a
// number of seconds that pass, "try", or what the try came to: "sent", "asked" or "unused"; want is what a step came to,
// where it came to something.
func TestCircuit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ steps, want string }{
		"too few failures":                      {"fails fails", ""},
		"a success between":                     {"fails fails works fails fails", ""},
		"failures in a row":                     {"fails fails fails", "opens"},
		"of any sort":                           {"fails unreached fails", "opens"},
		"look-ups fail":                         {"mute mute mute mute", ""},
		"look-ups fail among sends":             {"fails mute mute fails mute fails", "opens"},
		"what says nothing":                     {"fails fails nothing fails", "opens"},
		"a look-up answers, and sends fail":     {"fails answers fails answers fails", "opens"},
		"a look-up answers, nothing had passed": {"unreached unreached answers unreached unreached", ""},
		"nobody is let in":                      {"bars", "opens"},
		"one is turned away":                    {"rebuffs works rebuffs works rebuffs", ""},
		"two are turned away":                   {"rebuffs rebuffs", "opens"},
		"one is turned away, one fails":         {"rebuffs fails rebuffs", "opens"},
		"turned away among failures":            {"fails rebuffs rebuffs", "opens"},

		"no try at once":                            {"bars try", "opens no"},
		"one try per interval":                      {"bars 10 try try", "opens yes no"},
		"no second try while one is under way":      {"bars 10 try 100 try", "opens yes no"},
		"a try that fails":                          {"bars 10 try fails sent 9 try 1 try", "opens yes no yes"},
		"a try that succeeds":                       {"bars 10 try works sent try", "opens yes closes no"},
		"a try that only asks":                      {"bars 10 try asked 1 try 1 try", "opens yes no yes"},
		"a try that only asks, in vain":             {"bars 10 try mute asked 9 try 1 try", "opens yes no yes"},
		"a try that only asks, for long":            {"bars 10 try 9 asked try 1 try", "opens yes no yes"},
		"a try that never called":                   {"bars 10 try unused try", "opens yes yes"},
		"a try that is throttled":                   {"bars 10 try nothing sent try", "opens yes no"},
		"a try of an earlier opening":               {"bars 10 try works bars 10 try sent:1 try", "opens yes closes opens yes no"},
		"a success of one that was under way":       {"fails fails fails works", "opens closes"},
		"more failures":                             {"fails fails fails fails fails bars", "opens"},
		"as new afterwards":                         {"bars works fails fails", "opens closes"},
		"the count starts anew":                     {"unreached unreached unreached works fails fails fails", "opens closes opens"},
		"a look-up answers, nothing was reached":    {"unreached unreached unreached answers", "opens closes"},
		"a look-up answers, sends had failed":       {"fails fails fails answers try", "opens no"},
		"look-ups answer again":                     {"fails fails fails mute answers try", "opens yes"},
		"look-ups answer again, once":               {"fails fails fails mute answers try sent answers try", "opens yes no"},
		"look-ups fail and answer again and again":  {"fails fails fails mute answers try sent mute answers try", "opens yes yes"},
		"look-ups answer again, a try is under way": {"fails fails fails 10 try mute answers try", "opens yes no"},
		"no try while closed":                       {"fails fails try", "no"},
	} {
		t.Run(name, func(t *testing.T) {
			got := playCircuit(t, circuit{limit: 3, every: 10 * time.Second, least: 2 * time.Second}, strings.Fields(c.steps))
			if got != c.want {
				t.Errorf("%s: came to %q, want %q", c.steps, got, c.want)
			}
		})
	}
}

func playCircuit(t *testing.T, c circuit, steps []string) string {
	t.Helper()
	var came []string
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for _, step := range steps {
		if d, err := time.ParseDuration(step + "s"); err == nil {
			at = at.Add(d)
			continue
		}
		switch step {
		case "try":
			var ok bool
			c, ok = c.try(at)
			came = append(came, map[bool]string{true: "yes", false: "no"}[ok])
		case "sent":
			c = c.tried(c.ticket, calledToSend, at)
		case "sent:1":
			c = c.tried(1, calledToSend, at)
		case "asked":
			c = c.tried(c.ticket, calledToAsk, at)
		case "unused":
			c = c.tried(c.ticket, calledNot, at)
		default:
			s, known := signalNames[step]
			if !known {
				t.Fatalf("no such step: %s", step)
			}
			var turned turn
			c, turned = c.after(s, at)
			if turned != stays {
				came = append(came, map[turn]string{opens: "opens", closes: "closes"}[turned])
			}
		}
	}
	return strings.Join(came, " ")
}

// The two flags that jobs look at say what the circuit says, after any walk through it.
func FuzzBreaker(f *testing.F) {
	f.Add([]byte{2, 2, 2, 9, 1})
	f.Fuzz(func(t *testing.T, steps []byte) {
		b := newBreaker(3, 10*time.Second, time.Second)
		at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
		for _, step := range steps {
			at = at.Add(time.Duration(step) * 100 * time.Millisecond)
			was := b.state()
			var turned turn
			switch step % 10 {
			case 8:
				b.triedNow(b.state().ticket, effort(step/10%3), at)
			case 9:
				if _, ok := b.tryNow(at); ok && (!was.open || was.trying) {
					t.Errorf("a try in state %+v", was)
				}
			default:
				turned = b.report(signal(step%10), at)
			}
			now := b.state()
			if (turned == opens) != (!was.open && now.open) || (turned == closes) != (was.open && !now.open) {
				t.Errorf("from %+v to %+v, and it says %d", was, now, turned)
			}
			if b.isOpen.Load() != now.open || b.isQuiet.Load() != (!now.open && now.failures == 0) {
				t.Errorf("flags differ from %+v", now)
			}
		}
	})
}
