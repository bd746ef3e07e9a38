package admin

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// deed is one thing that can be done, ready to be done.
type deed struct {
	act   string
	place string        // the page that it is about, and that tells what came of it
	limit time.Duration // 0: none
	do    func(consumer.ActOptions) job
}

// offer is what an address offers to do: a form that says what would happen, and the deed itself. Both are made of the order,
// because a form that cannot be used comes back with what was typed.
type offer struct {
	form func(*http.Request, order) (form, error)
	deed func(*http.Request, order) (deed, error)
}

// offers are the addresses at which something can be done.
func (s *screen) offers() map[string]offer {
	return map[string]offer{
		"/tasks/{id}/{act}":        {s.taskForm, s.taskDeed},
		"/refusals/{id}/republish": {s.republishForm, s.republishDeed},
		"/kinds/{kind}/{act}":      {s.kindForm, s.kindDeed},
		"/recover":                 {s.recoverForm, s.recoverDeed},
	}
}

// mayAct reports whether whoever asks may change things here.
func (s *screen) mayAct(r *http.Request) bool {
	if s.Acts == nil || s.Actor == nil {
		return false
	}
	name, operator := s.Actor(r)
	return operator && name != ""
}

// getForm shows the form of an offer, filled in by the address. It changes nothing.
func (s *screen) getForm(o offer) getter {
	return func(r *http.Request) (view, error) {
		if !s.mayAct(r) {
			return view{}, &refused{http.StatusForbidden, operatorsOnly}
		}
		filled, err := orderOf(r.URL.Query())
		if err != nil {
			return view{}, err
		}
		filled.Reason = ""
		return formView(o.form(r, filled))
	}
}

func formView(f form, err error) (view, error) {
	f.ID = uuid.NewString()
	return view{page: "act", title: f.Title, data: f}, err
}

// send does what a form asks for and leads to the page that says what came of it. A form that cannot be used comes back.
func (s *screen) send(o offer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		filled, err := readOrder(w, r)
		if err == nil {
			var p idemstore.Pressed
			if p, err = s.carryOut(r, o, filled); err == nil {
				http.Redirect(w, r, p.Place+"?"+url.Values{"act": {p.ID.String()}}.Encode(), http.StatusSeeOther)
				return
			}
		}
		r, cancel := s.briefly(r)
		defer cancel()
		status, text := s.problem(r.Context(), err)
		v := view{page: "problem", title: text, data: text}
		if status == http.StatusBadRequest || status == http.StatusConflict {
			if again, err := formView(o.form(r, filled)); err == nil {
				f, _ := again.data.(form)
				f.Problem = text
				again.data = f
				v = again
			}
		}
		s.render(w, r, status, "frame", v)
	}
}

// sendAPI is send for the API.
func (s *screen) sendAPI(o offer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		filled, err := readAPIOrder(w, r)
		var p idemstore.Pressed
		if err == nil {
			p, err = s.carryOut(r, o, filled)
		}
		if err != nil {
			status, text := s.problem(r.Context(), err)
			s.writeJSON(w, r, status, map[string]string{"error": text})
			return
		}
		came := s.came(p, p.Outcome == "")
		s.writeJSON(w, r, came.status(), came)
	}
}

// carryOut does what an order asks for, or says what would be done.
func (s *screen) carryOut(r *http.Request, offered offer, o order) (idemstore.Pressed, error) {
	brief, cancel := s.briefly(r)
	defer cancel()
	d, err := offered.deed(brief, o)
	if err != nil {
		return idemstore.Pressed{}, err
	}
	p, err := s.pressed(r, d, o)
	if err != nil {
		return p, err
	}
	do := d.do(consumer.ActOptions{Actor: p.Actor, Reason: p.Reason, DryRun: o.DryRun})
	if o.DryRun {
		end := do(r.Context())
		p.Outcome, p.Message = end.outcome, end.message
		return p, nil
	}
	return s.Acts.press(r.Context(), p, do, d.limit)
}

// pressed is an order as it is written down.
func (s *screen) pressed(r *http.Request, d deed, o order) (p idemstore.Pressed, err error) {
	p = idemstore.Pressed{Act: d.act, Place: d.place}
	p.Actor, _ = s.Actor(r)
	if p.Reason, err = o.reason(); err != nil {
		return p, err
	}
	switch {
	case o.ID == "" && o.form:
		return p, badRequest(formSpoilt)
	case o.ID == "":
		p.ID = uuid.New()
	default:
		if p.ID, err = uuid.Parse(o.ID); err != nil {
			return p, badRequest(formSpoilt)
		}
	}
	all, err := json.Marshal([]any{p.Actor, p.Act, p.Place, o})
	digest := sha256.Sum256(all)
	p.Digest = digest[:]
	return p, err
}

// came is what came of an act.
type came struct {
	ID      string     `json:"id,omitempty"`
	Act     string     `json:"act"`
	Place   string     `json:"place"` // the page that it is about
	Actor   string     `json:"actor"`
	Reason  string     `json:"reason,omitempty"`
	Outcome string     `json:"outcome"`
	Message string     `json:"message"`
	At      *time.Time `json:"at,omitempty"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
}

// came tells what came of a press. Where nothing is written and it is not under way here, nobody knows.
func (s *screen) came(p idemstore.Pressed, running bool) came {
	c := came{p.ID.String(), p.Act, p.Place, p.Actor, p.Reason, p.Outcome, p.Message, &p.At, p.EndedAt}
	switch {
	case p.At.IsZero() && p.Outcome == string(consumer.OutcomeWouldDo), p.At.IsZero() && !running:
		c.ID, c.At = "", nil
	case p.At.IsZero():
		c.At = nil
	}
	switch {
	case p.Outcome != "":
	case running:
		c.Outcome, c.Message = outcomeRunning, stillRunning
	default:
		c.Outcome, c.Message = outcomeFailed, nobodyAtIt
	}
	return c
}

// status is the status of HTTP for what came of an act.
func (c came) status() int {
	switch c.Outcome {
	case outcomeRunning:
		return http.StatusAccepted
	case outcomeFailed:
		return http.StatusServiceUnavailable
	case string(consumer.OutcomeRefused), string(consumer.OutcomeOvertaken):
		return http.StatusConflict
	}
	return http.StatusOK
}

// Sentence is what came of it in one sentence.
func (c came) Sentence() string { return outcomeWords[c.Outcome] + " " + sentence(c.Message) }

// Running says that it is not over.
func (c came) Running() bool { return c.Outcome == outcomeRunning }

// getPress tells what came of an act, by its id.
func (s *screen) getPress(r *http.Request) (view, error) {
	c, err := s.findPress(r, r.PathValue("id"))
	return view{page: "problem", title: c.Act, data: c}, err
}

func (s *screen) findPress(r *http.Request, text string) (came, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return came{}, notFound(noSuchThing)
	}
	var (
		asked   idemstore.Pressed
		running bool
	)
	if s.Acts != nil { // before the row is read: whoever ends it writes first
		asked, running = s.Acts.running(id)
	}
	p, err := s.Store.FindPress(r.Context(), id)
	if running && errors.Is(err, idemstore.ErrNotFound) { // whoever begins it is about to write
		p, err = asked, nil
	}
	return s.came(p, running), err
}

// notice is what came of the act that an address names, if it is about this very page.
func (s *screen) notice(r *http.Request) *came {
	text := r.URL.Query().Get("act")
	if text == "" {
		return nil
	}
	c, err := s.findPress(r, text)
	if err != nil || c.Place != r.URL.Path {
		return nil
	}
	return &c
}
