package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

// form is a page that says what would happen, and asks why.
type form struct {
	ID      string
	Act     string
	Title   string
	Place   string // the page that it is about
	To      string // where it is sent
	Now     string // how things are
	Facts   []fact
	Effect  string // what would happen
	Blocked string // why nothing can be done; then there is nothing to send
	Problem string // why what was sent could not be used
	Press   string // on the button
	Order   order
	Job     string    // of supersede: the content that it has
	Choices []refusal // of supersede
	Kinds   []string  // of recover
	Set     *foreseen // of recover
}

// next is an act that a task allows.
type next struct {
	Act    string `json:"act"`
	Effect string `json:"effect"` // what it would come to
}

// Words are those on the button.
func (n next) Words() string { return actWords[n.Act] }

// nextOf are the acts that a task allows.
func (s *screen) nextOf(t idemstore.Task, refused []idemstore.KeptRefusal) (out []next) {
	for _, o := range s.Acts.config.Operator.AllowedActs(t) {
		if o.Act == consumer.ActSupersede && len(s.contents(t, refused)) == 0 {
			continue
		}
		out = append(out, next{string(o.Act), o.Effect})
	}
	return out
}

// whyNotSent says why nothing can be sent for a task; empty if something can.
func (s *screen) whyNotSent(ctx context.Context, t idemstore.Task) string {
	acted, err := s.try(ctx, t, consumer.ActRetry, order{}, consumer.ActOptions{Actor: nobody, DryRun: true})
	if err != nil || acted.Outcome != consumer.OutcomeRefused {
		return ""
	}
	return sentence(acted.Message)
}

// nobody stands for the actor of a preview, which is written nowhere.
const nobody = "preview"

// try does an act on a task as it was seen, as the commands do.
func (s *screen) try(ctx context.Context, t idemstore.Task, act consumer.Act, o order, by consumer.ActOptions) (consumer.Acted, error) {
	operator := s.Acts.config.Operator
	switch act {
	case consumer.ActAsk:
		return operator.Ask(ctx, t, by)
	case consumer.ActRetry:
		return operator.Retry(ctx, t, by)
	case consumer.ActSendAgain:
		return operator.SendAgain(ctx, t, by)
	case consumer.ActCancel:
		return operator.Cancel(ctx, t, by)
	case consumer.ActNote:
		return operator.Note(ctx, t, by)
	case consumer.ActSupersede:
		return operator.Supersede(ctx, t, by, o.Refusal)
	case consumer.ActResolve:
		r := consumer.Ruling{As: idemstore.Status(o.As), ExternalID: o.ExternalID, Force: o.Force}
		if o.Result != "" {
			r.Result = []byte(o.Result)
		}
		return operator.Resolve(ctx, t, by, r)
	}
	return consumer.Acted{}, notFound(noSuchPage)
}

// taskActs are the acts on one task.
var taskActs = []consumer.Act{consumer.ActAsk, consumer.ActRetry, consumer.ActSendAgain, consumer.ActResolve, consumer.ActSupersede,
	consumer.ActCancel, consumer.ActNote}

// taskAct reads task and act off an address.
func (s *screen) taskAct(r *http.Request) (id int64, act consumer.Act, err error) {
	act = consumer.Act(r.PathValue("act"))
	if !slices.Contains(taskActs, act) {
		return 0, "", notFound(noSuchPage)
	}
	id, err = number(r.PathValue("id"))
	return id, act, err
}

func (s *screen) taskForm(r *http.Request, o order) (form, error) {
	id, act, err := s.taskAct(r)
	if err != nil {
		return form{}, err
	}
	t, err := s.Store.FindByID(r.Context(), id)
	if err != nil {
		return form{}, err
	}
	refused, err := s.Store.RefusalsOf(r.Context(), id, refusalsShown)
	if err != nil {
		return form{}, err
	}
	place := taskPlace(id)
	o.Status, o.Attempts = string(t.Status), t.Attempt
	f := form{Act: string(act), Title: actWords[string(act)] + ": " + t.Kind + " " + story.Printable(t.Key), Place: place, To: place + "/" + string(act),
		Now: answer(t, false, s.kinds[t.Kind].Words), Facts: formFacts(t), Press: actWords[string(act)], Order: o}
	if act == consumer.ActSupersede {
		f.Job = s.shownOf(t.Kind, t.Payload)
		if f.Choices, err = s.bodies(r.Context(), s.contents(t, refused)); err != nil {
			return form{}, err
		}
	}
	f.Effect, f.Blocked = s.foreseeTask(r.Context(), t, act, f.Choices)
	return f, nil
}

// foreseeTask says what an act would come to, or why it is not possible. It asks nobody.
func (s *screen) foreseeTask(ctx context.Context, t idemstore.Task, act consumer.Act, choices []refusal) (effect, blocked string) {
	options := s.Acts.config.Operator.AllowedActs(t)
	at := slices.IndexFunc(options, func(o consumer.AllowedAct) bool { return o.Act == act })
	if at < 0 {
		acted, err := s.try(ctx, t, act, order{As: string(idemstore.Failed)}, consumer.ActOptions{Actor: nobody, DryRun: true})
		why := sentence(acted.Message)
		switch {
		case errors.Is(err, consumer.ErrInput):
			return "", unknownKind
		case act == consumer.ActResolve && t.Status == idemstore.Started && t.LeaseLive:
			return why, "" // it can be forced
		}
		return "", cmp.Or(why, cannotRead)
	}
	effect = options[at].Effect
	switch act {
	case consumer.ActSupersede:
		if len(choices) == 0 {
			return "", noContent
		}
	case consumer.ActRetry, consumer.ActSendAgain, consumer.ActCancel: // these ask nobody, so a dry run tells more
		acted, err := s.try(ctx, t, act, order{}, consumer.ActOptions{Actor: nobody, DryRun: true})
		if err == nil && acted.Outcome == consumer.OutcomeRefused {
			return "", sentence(acted.Message)
		}
		if err == nil {
			effect = acted.Message
		}
	case consumer.ActAsk, consumer.ActResolve, consumer.ActNote:
	}
	return sentence(effect), ""
}

// contents are the refused messages whose content a task could take.
func (s *screen) contents(t idemstore.Task, refused []idemstore.KeptRefusal) (out []refusal) {
	for _, r := range refused {
		if r.Kind == t.Kind && !r.Cut {
			out = append(out, s.refusalOf(r))
		}
	}
	return out
}

// bodies adds to refusals what lists leave out: nobody can choose a content that is not shown.
func (s *screen) bodies(ctx context.Context, of []refusal) ([]refusal, error) {
	for i, r := range of {
		kept, err := s.Store.FindRefusal(ctx, r.ID)
		if err != nil {
			return nil, err
		}
		of[i] = s.refusalOf(kept)
	}
	return of, nil
}

func formFacts(t idemstore.Task) []fact {
	facts := []fact{
		{factTask, strconv.FormatInt(t.TaskID, 10), taskPlace(t.TaskID)}, {texts["status"], story.Status(t.Status), ""},
		{texts["attempts"], strconv.Itoa(t.Attempt), ""},
	}
	for _, f := range []fact{{texts["cause"], story.Cause(t.Cause), ""}, {texts["external"], t.ExternalID, ""}, {texts["last_error"], t.LastError, ""}} {
		if f.Value != "" {
			facts = append(facts, f)
		}
	}
	return facts
}

func taskPlace(id int64) string { return "/tasks/" + strconv.FormatInt(id, 10) }

func (s *screen) taskDeed(r *http.Request, o order) (deed, error) {
	id, act, err := s.taskAct(r)
	switch {
	case err != nil:
		return deed{}, err
	case o.form && (o.Status == "" || o.Attempts == 0):
		return deed{}, badRequest(formSpoilt)
	case act == consumer.ActResolve && !idemstore.Status(o.As).Final():
		return deed{}, badRequest(noRuling)
	case act == consumer.ActSupersede && o.Refusal == 0:
		return deed{}, badRequest(noRefusal)
	}
	return deed{string(act), taskPlace(id), s.actLimit(), func(by consumer.ActOptions) job {
		return func(ctx context.Context) ending { return s.actOn(ctx, id, act, o, by) }
	}}, nil
}

func (s *screen) actLimit() time.Duration { return s.Acts.config.Limit }

// actOn does an act on a task if it still is as it was seen. The engine compares once more, in its statement.
func (s *screen) actOn(ctx context.Context, id int64, act consumer.Act, o order, by consumer.ActOptions) ending {
	t, err := s.Store.FindByID(ctx, id)
	if err != nil {
		return s.Acts.failed(ctx, err)
	}
	if act != consumer.ActNote && !o.saw(t) {
		return ending{string(consumer.OutcomeOvertaken), changedSince(o, t)}
	}
	acted, err := s.try(ctx, t, act, o, by)
	if err != nil {
		return s.Acts.failed(ctx, err)
	}
	return ending{string(acted.Outcome), sentence(acted.Message)}
}

// saw reports whether a task is as it was seen, as far as that is said.
func (o order) saw(t idemstore.Task) bool {
	return (o.Status == "" || o.Status == string(t.Status)) && (o.Attempts == 0 || o.Attempts == t.Attempt)
}

func changedSince(o order, t idemstore.Task) string {
	was := ""
	if o.Status != "" {
		was = fmt.Sprintf(seenAs, story.Status(idemstore.Status(o.Status)), o.Attempts)
	}
	return fmt.Sprintf(changedTask, was, story.Status(t.Status), t.Attempt)
}
