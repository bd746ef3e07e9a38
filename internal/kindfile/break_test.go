package kindfile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/consumer/consumertest"
)

func TestMain(m *testing.M) { consumertest.Main(m) }

// The kind of the file that ships goes through everything that goes wrong in production.
func TestBreakAKindOfAFile(t *testing.T) {
	t.Parallel()
	f, err := Read("../../deploy/kinds/report.yaml")
	if err != nil {
		t.Fatal(err)
	}
	consumertest.Break(t, consumertest.Subject[Job, Result]{
		Kind: func(url string) consumer.Kind[Job, Result] {
			def, err := f.Kinds[0].Definition(Options{URL: url})
			if err != nil {
				t.Error(err)
			}
			return def
		},
		Provider: func() consumertest.Provider[Job] {
			fake := &reporter{byKey: map[string]*report{}}
			return consumertest.Provider[Job]{Handler: fake, Effects: fake.effects}
		},
		Jobs: []Job{jobOf(t, `{"task_id": 1, "report_type": "monthly"}`), jobOf(t, `{"task_id": 2, "report_type": "daily"}`)},
	})
}

// reporter is a provider of reports that keeps keys.
type reporter struct {
	mu    sync.Mutex
	made  []*report
	byKey map[string]*report
}

type report struct {
	ID     string      `json:"report_id"`
	Status string      `json:"status"`
	Task   json.Number `json:"task_id"`
	Type   string      `json:"report_type"`
}

func (p *reporter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		key = r.URL.Query().Get("idempotency_key")
	}
	known := p.byKey[key]
	w.Header().Set("Content-Type", "application/json")
	switch {
	case known != nil:
	case r.Method == http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"error":"not_found"}`))
		return
	default:
		known = &report{}
		if err := json.NewDecoder(r.Body).Decode(known); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		known.ID, known.Status = fmt.Sprint("rep_", len(p.made)), "ready"
		p.made, p.byKey[key] = append(p.made, known), known
	}
	_ = json.NewEncoder(w).Encode(known)
}

func (p *reporter) effects(j Job) (n int) {
	var want report
	_ = json.Unmarshal(j.raw, &want)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.made {
		if r.Task == want.Task {
			n++
		}
	}
	return n
}
