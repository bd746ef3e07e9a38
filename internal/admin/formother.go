package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// The acts that are not about one task.
const (
	actRepublish = "republish"
	actRecover   = "recover"
)

func (s *screen) republishForm(r *http.Request, o order) (form, error) {
	id, err := number(r.PathValue("id"))
	if err != nil {
		return form{}, err
	}
	kept, err := s.Store.FindRefusal(r.Context(), id)
	if err != nil {
		return form{}, err
	}
	f := form{Act: actRepublish, Title: actWords[actRepublish] + ": " + texts["refusal"] + " " + strconv.FormatInt(id, 10), Place: refusalPlace(id),
		To: refusalPlace(id) + "/" + actRepublish, Facts: s.refusalOf(kept).Facts(), Press: actWords[actRepublish], Order: o}
	if s.Acts.config.Republish == nil {
		f.Blocked = noNATS
		return f, nil
	}
	out, err := s.Acts.config.Republish(r.Context(), id, consumer.ActOptions{Actor: nobody, DryRun: true})
	switch {
	case err != nil:
		return form{}, err
	case out.Outcome == consumer.OutcomeWouldDo:
		f.Effect = sentence(out.Message)
	default:
		f.Blocked = sentence(out.Message)
	}
	return f, nil
}

func refusalPlace(id int64) string { return "/refusals/" + strconv.FormatInt(id, 10) }

func (s *screen) republishDeed(r *http.Request, _ order) (deed, error) {
	id, err := number(r.PathValue("id"))
	if err != nil {
		return deed{}, err
	}
	if s.Acts.config.Republish == nil {
		return deed{}, conflict(noNATS)
	}
	return deed{actRepublish, refusalPlace(id), s.actLimit(), func(by consumer.ActOptions) job {
		return func(ctx context.Context) ending {
			out, err := s.Acts.config.Republish(ctx, id, by)
			if err != nil {
				return s.Acts.failed(ctx, err)
			}
			return ending{string(out.Outcome), sentence(out.Message)}
		}
	}}, nil
}

const kindsPlace = "/kinds"

// kindAct reads kind, mode and the control that counts off an address.
func (s *screen) kindAct(r *http.Request) (now idemstore.Control, mode idemstore.Mode, err error) {
	mode, known := modeOf[r.PathValue("act")]
	kind := r.PathValue("kind")
	if !known {
		return now, "", notFound(noSuchPage)
	}
	if _, ours := s.kinds[kind]; !ours { // other programs have kinds of their own
		if known, err = s.Store.KnowsKind(r.Context(), kind); err != nil || !known {
			return now, "", cmp.Or(err, notFound(noSuchKind))
		}
	}
	controls, err := s.Store.Controls(r.Context(), kind)
	if len(controls) == 0 {
		return idemstore.Control{Kind: kind, Mode: idemstore.ModeRunning}, mode, err
	}
	return controls[0], mode, err
}

func (s *screen) kindForm(r *http.Request, o order) (form, error) {
	now, mode, err := s.kindAct(r)
	if err != nil {
		return form{}, err
	}
	act := r.PathValue("act")
	o.Mode = string(now.Mode)
	f := form{Act: act, Title: actWords[act] + ": " + now.Kind, Place: kindsPlace, To: kindPlace(now.Kind, act), Press: actWords[act], Order: o,
		Facts: []fact{{texts["kind"], now.Kind, kindsPlace}, {texts["mode"], modeWords[string(now.Mode)], ""}}, Effect: modeEffects[mode]}
	if now.Reason != "" {
		f.Facts = append(f.Facts, fact{texts["who"], now.Actor, ""}, fact{texts["reason"], now.Reason, ""})
	}
	if now.Mode == mode {
		f.Effect, f.Blocked = "", fmt.Sprintf(modeAlready, modeWords[string(mode)])
	}
	return f, nil
}

func (s *screen) kindDeed(r *http.Request, o order) (deed, error) {
	now, mode, err := s.kindAct(r)
	if err != nil {
		return deed{}, err
	}
	return deed{r.PathValue("act"), kindsPlace, s.actLimit(), func(by consumer.ActOptions) job {
		return func(ctx context.Context) ending {
			return s.serve(ctx, o.Mode, idemstore.Control{Kind: now.Kind, Mode: mode, Actor: by.Actor, Reason: by.Reason}, by.DryRun)
		}
	}}, nil
}

// serve asks workers to serve a kind in another mode, if it is served as was seen.
func (s *screen) serve(ctx context.Context, seen string, want idemstore.Control, dry bool) ending {
	now, err := s.mode(ctx, want.Kind)
	switch {
	case err != nil:
		return s.Acts.failed(ctx, err)
	case seen != "" && seen != now:
		return ending{string(consumer.OutcomeOvertaken), fmt.Sprintf(changedMode, want.Kind, modeWords[seen], modeWords[now])}
	case dry:
		return ending{string(consumer.OutcomeWouldDo), modeEffects[want.Mode]}
	}
	_, changed, err := s.Store.SetControl(ctx, want)
	switch {
	case err != nil:
		return s.Acts.failed(ctx, err)
	case !changed:
		return ending{string(consumer.OutcomeRefused), fmt.Sprintf(modeAlready, modeWords[string(want.Mode)])}
	}
	return ending{string(consumer.OutcomeDone), fmt.Sprintf(modeSet, want.Kind, modeWords[string(want.Mode)])}
}
