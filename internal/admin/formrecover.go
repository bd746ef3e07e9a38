package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/story"
)

const (
	recoverPlace    = "/recover"
	longestWindow   = 365 * 24 * time.Hour
	mostRecovered   = 10_000 // tasks of one recovery; settle recover takes more
	usualWindow     = 24 * time.Hour
	usualRecovered  = 100
	foreseenShown   = 100
	foreseenPatient = 8 * time.Second // less than a page may take
)

// foreseen is what a recovery would do.
type foreseen struct {
	Counts string
	Tasks  []foreseenTask
	More   int // that are not shown
}

// foreseenTask is what would become of one task.
type foreseenTask struct {
	row

	Message string
}

// recovery reads what is to be recovered.
func (s *screen) recovery(o order) (kind string, out consumer.RecoverOptions, err error) {
	out = consumer.RecoverOptions{OlderThan: s.LongAfter, NewerThan: usualWindow, Limit: cmp.Or(o.Limit, usualRecovered)}
	for text, into := range map[*string]*time.Duration{&o.OlderThan: &out.OlderThan, &o.Within: &out.NewerThan} {
		if *text == "" {
			continue
		}
		if *into, err = time.ParseDuration(*text); err != nil {
			return "", out, badRequest(noSuchSpan)
		}
	}
	_, known := s.kinds[o.Kind]
	switch {
	case o.Kind != "" && !known:
		return "", out, badRequest(noSuchKind)
	case out.OlderThan < 0, out.OlderThan >= out.NewerThan, out.NewerThan > longestWindow:
		return "", out, badRequest(wrongWindow)
	case out.Limit < 1, out.Limit > mostRecovered:
		return "", out, badRequest(wrongLimit)
	}
	return o.Kind, out, nil
}

// recoverForm asks what is to be recovered, and once that is said shows what would become of it.
func (s *screen) recoverForm(r *http.Request, o order) (form, error) {
	f := form{Act: actRecover, Title: actWords[actRecover], Place: recoverPlace, To: recoverPlace, Press: actWords[actRecover], Order: o}
	for _, k := range s.Kinds {
		f.Kinds = append(f.Kinds, k.Name)
	}
	kind, options, err := s.recovery(o)
	f.Order.OlderThan, f.Order.Within, f.Order.Limit = story.Short(options.OlderThan), story.Short(options.NewerThan), options.Limit
	if err != nil {
		f.Problem, f.Order = err.Error(), o
		return f, nil //nolint:nilerr // the form says what is wrong with it
	}
	if o.Within == "" {
		return f, nil
	}
	f.Set = &foreseen{}
	counts := map[consumer.RecoverOutcome]int{}
	err = s.foresee(r.Context(), kind, options, func(t consumer.Recovered) {
		if counts[t.Outcome]++; len(f.Set.Tasks) == foreseenShown {
			f.Set.More++
			return
		}
		f.Set.Tasks = append(f.Set.Tasks, foreseenTask{rowOf(t.Task), sentence(t.Message)})
	})
	switch {
	case errors.Is(err, consumer.ErrTooMany):
		f.Blocked = fmt.Sprintf(tooManyMatch, options.Limit)
	case err != nil:
		return form{}, err
	case len(f.Set.Tasks) == 0:
		f.Blocked = nothingMatches
	}
	f.Set.Counts = recoveredWords(counts)
	return f, nil
}

// foresee runs a recovery dry, which only reads.
func (s *screen) foresee(ctx context.Context, kind string, o consumer.RecoverOptions, report func(consumer.Recovered)) error {
	ctx, cancel := context.WithTimeout(ctx, foreseenPatient)
	defer cancel()
	o.DryRun = true
	return s.Acts.config.Recover(ctx, kind, o, report)
}

func (s *screen) recoverDeed(_ *http.Request, o order) (deed, error) {
	kind, options, err := s.recovery(o)
	if err != nil {
		return deed{}, err
	}
	return deed{actRecover, recoverPlace, 0, func(by consumer.ActOptions) job {
		options.Actor, options.Reason, options.DryRun = by.Actor, by.Reason, by.DryRun
		return func(ctx context.Context) ending { return s.recoverSet(ctx, kind, options) }
	}}, nil
}

func (s *screen) recoverSet(ctx context.Context, kind string, o consumer.RecoverOptions) ending {
	matched, reached, counts := 0, 0, map[consumer.RecoverOutcome]int{}
	o.Matched = func(n int) { matched = n }
	err := s.Acts.config.Recover(ctx, kind, o, func(t consumer.Recovered) { counts[t.Outcome]++; reached++ })
	words := recoveredWords(counts)
	switch {
	case errors.Is(err, consumer.ErrTooMany):
		return ending{string(consumer.OutcomeRefused), fmt.Sprintf(tooManyMatch, o.Limit)}
	case err != nil && reached == 0:
		return s.Acts.failed(ctx, err)
	case err != nil || reached < matched:
		return ending{outcomeFailed, fmt.Sprintf(recoveredSome, reached, matched, words)}
	case o.DryRun:
		return ending{string(consumer.OutcomeWouldDo), words}
	case matched == 0:
		return ending{string(consumer.OutcomeDone), nothingMatches}
	}
	return ending{string(consumer.OutcomeDone), words}
}
