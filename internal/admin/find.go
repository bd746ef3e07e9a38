package admin

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/story"
)

const (
	maxSearch = 64 + 1 + 512 // bytes of KIND/KEY; nothing else that is searched for is longer
	findLimit = 50
)

// row is a task in a list. The names are those of settle tasks list --json.
type row struct {
	Task          int64      `json:"task"`
	Kind          string     `json:"kind"`
	Key           string     `json:"key"`
	Status        string     `json:"status"`
	Attempts      int        `json:"attempts"`
	ExternalID    string     `json:"external_id"`
	Failures      int        `json:"failures"`
	Duplicates    int        `json:"duplicates"`
	LastError     string     `json:"last_error,omitempty"`
	ErrorClass    string     `json:"error_class,omitempty"`
	Cause         string     `json:"cause,omitempty"`
	NextAttemptAt *time.Time `json:"next_attempt_at,omitempty"`
	GiveUpAt      *time.Time `json:"give_up_at,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
	FinishedAt    *time.Time `json:"finished_at,omitempty"`
	ArchivedAt    *time.Time `json:"archived_at,omitempty"`

	Matched string `json:"matched,omitempty"` // of a search: task, key, provider_key, trace_id, or the name of a search term
	Value   string `json:"matched_value,omitempty"`
}

func rowOf(t idemstore.Task) row {
	r := row{
		Task: t.TaskID, Kind: t.Kind, Key: t.Key, Status: string(t.Status), Attempts: t.Attempt, ExternalID: t.ExternalID,
		Failures: t.Failures, Duplicates: t.Duplicates, LastError: t.LastError, ErrorClass: t.ErrorClass, Cause: string(t.Cause),
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, FinishedAt: t.FinishedAt, ArchivedAt: t.ArchivedAt,
	}
	if !t.Status.Final() {
		r.NextAttemptAt, r.GiveUpAt = &t.NextAttemptAt, &t.GiveUpAt
	}
	return r
}

// MatchedBy says in words what of the task was found.
func (r row) MatchedBy() string {
	if words, ok := matchWords[r.Matched]; ok {
		return words
	}
	return r.Matched
}

// hit is a task that a search found, with the answer.
type hit struct {
	row
	Message string `json:"message"` // as on the page of the task
}

// Reference is the external id, where the sentence does not give it.
func (h hit) Reference() string {
	if strings.Contains(h.Message, story.Printable(h.ExternalID)) {
		return ""
	}
	return h.ExternalID
}

// found is what a search came to.
type found struct {
	Query string `json:"query"`
	Tasks []hit  `json:"tasks"`
	Exact bool   `json:"exact"` // they have what was searched for; else they begin with it
	More  bool   `json:"more"`  // there may be more
}

func (s *screen) getFind(r *http.Request) (view, error) {
	f := found{Query: strings.TrimSpace(r.URL.Query().Get("q")), Tasks: []hit{}}
	v := view{page: "find", title: texts["find"]}
	if err := s.find(r.Context(), &f); err != nil {
		return v, err
	}
	if len(f.Tasks) == 1 && f.Exact {
		v.goTo = fmt.Sprintf("/tasks/%d", f.Tasks[0].Task)
	}
	v.data = f
	return v, nil
}

func (s *screen) find(ctx context.Context, f *found) error {
	switch {
	case f.Query == "":
		return nil
	case !utf8.ValidString(f.Query) || strings.ContainsRune(f.Query, 0):
		return badRequest(noText)
	case len(f.Query) > maxSearch:
		return badRequest(tooLong)
	}
	hits, err := s.Store.Search(ctx, idemstore.Search{Text: f.Query, Limit: findLimit})
	if err != nil {
		return err
	}
	f.Exact = len(hits) > 0 && !begins(hits[0], f.Query)
	f.More = len(hits) == findLimit
	f.Tasks, err = s.answered(ctx, hits)
	return err
}

// answered says of each hit what became of it, so that nobody has to open one after the other.
func (s *screen) answered(ctx context.Context, hits []idemstore.Hit) ([]hit, error) {
	ids, out := make([]int64, 0, len(hits)), make([]hit, 0, len(hits))
	for _, h := range hits {
		ids = append(ids, h.TaskID)
	}
	briefs, err := s.Store.Briefs(ctx, ids)
	for _, h := range hits {
		one, brief := rowOf(h.Task), briefs[h.TaskID]
		one.Matched, one.Value = h.Matched, h.Value
		t := h.Task
		t.Payload = brief.Payload
		skipped := t.Status == idemstore.Finished && story.Stale(brief.Ended)
		out = append(out, hit{one, answer(t, skipped, s.kinds[t.Kind].Words)})
	}
	return out, err
}

// Note says how many there are, and whether they are what was searched for.
func (f found) Note() string {
	switch {
	case !f.Exact:
		return texts["find_begin"]
	case f.More:
		return texts["find_newest"]
	}
	return numberOf(len(f.Tasks), oneHit, manyHits)
}

// begins reports that a hit only begins with the text: a search gives such hits only where nothing equals it.
func begins(h idemstore.Hit, text string) bool {
	name := h.Kind + "/" + h.Key
	switch h.Matched {
	case "task", "trace_id":
		return false
	case "key":
		return h.Key != text && name != text && !strings.HasPrefix(text, "hash-")
	}
	return h.Value != text && !strings.HasPrefix(text, "hash-")
}
