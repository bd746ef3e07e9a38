package admin

import (
	"net/http"
	"net/url"

	"github.com/settlemq/settle/idemstore"
)

// kindPage is a kind with how it is served.
type kindPage struct {
	Name    string   `json:"kind"`
	Facts   []Fact   `json:"-"`
	Object  any      `json:"declaration,omitempty"` // as settle kinds --json prints it
	Control *control `json:"control,omitempty"`     // none: nobody ever paused it
	Next    []next   `json:"next,omitempty"`        // what can be done, for whoever may act
}

func (s *screen) getKinds(r *http.Request) (view, error) {
	controls, err := s.Store.Controls(r.Context())
	if err != nil {
		return view{}, err
	}
	latest := map[string]control{}
	for _, c := range controls {
		latest[c.Kind] = control{c.Kind, string(c.Mode), c.Actor, c.Reason, c.At}
	}
	pages := []kindPage{}
	for _, k := range s.Kinds {
		p := kindPage{Name: k.Name, Facts: k.Facts, Object: k.Object}
		if c, ok := latest[k.Name]; ok {
			p.Control = &c
		}
		if s.mayAct(r) {
			p.Next = nextModes(p.Control)
		}
		pages = append(pages, p)
	}
	return view{page: "kinds", title: texts["kinds"], data: map[string]any{"kinds": pages}}, nil
}

// nextModes are the modes that a kind is not in.
func nextModes(c *control) (out []next) {
	now := idemstore.ModeRunning
	if c != nil {
		now = idemstore.Mode(c.Mode)
	}
	for _, act := range modeActs {
		if mode := modeOf[act]; mode != now {
			out = append(out, next{act, modeEffects[mode]})
		}
	}
	return out
}

// Link leads to the form of an act on the kind.
func (k kindPage) Link(act string) string { return kindPlace(k.Name, act) }

func kindPlace(kind, act string) string { return kindsPlace + "/" + url.PathEscape(kind) + "/" + act }

// modeActs are the acts on a kind, and modeOf the modes that they lead to.
var (
	modeActs = []string{"keep-asking", "pause", "resume"}
	modeOf   = map[string]idemstore.Mode{"keep-asking": idemstore.ModeAsking, "pause": idemstore.ModePaused, "resume": idemstore.ModeRunning}
)
