package kindbreak

import (
	"net/http"

	"github.com/settlemq/settle/internal/kindfile"
)

// story is one thing that goes wrong with one job.
type story struct {
	name   string
	twice  bool // the job is published twice at once
	onSend act  // what happens to the first request for the effect
	blind  int  // so many look-ups fail
}

// act does something with a request for the effect, instead of passing it on.
type act func(f *front, w http.ResponseWriter, r *http.Request)

// storiesOf are those that make sense for a kind.
func storiesOf(k *kindfile.Kind) []story {
	all := []story{
		{name: "nothing goes wrong"},
		{name: "the same job comes twice at once", twice: true},
		{name: "the worker is killed before its request arrives", onSend: killBefore},
		{name: "the worker is killed after the effect", onSend: killAfter},
		{name: "the answer is lost", onSend: loseAnswer},
		{name: "the answer is a server error, after the effect", onSend: hideAnswer},
	}
	if k.CanAsk() {
		all = append(all, story{name: "the answer is lost, and look-ups fail for a while", onSend: loseAnswer, blind: 2})
	}
	return all
}

// Needed is how many different jobs it takes to run a kind.
func Needed(k *kindfile.Kind) int { return len(storiesOf(k)) }

func killBefore(f *front, _ http.ResponseWriter, r *http.Request) {
	f.kill()
	<-r.Context().Done()
}

func killAfter(f *front, _ http.ResponseWriter, r *http.Request) {
	f.happen(r)
	f.kill()
	<-r.Context().Done()
}

func loseAnswer(f *front, _ http.ResponseWriter, r *http.Request) {
	f.happen(r)
	panic(http.ErrAbortHandler)
}

func hideAnswer(f *front, w http.ResponseWriter, r *http.Request) {
	f.happen(r)
	w.WriteHeader(http.StatusInternalServerError)
}
