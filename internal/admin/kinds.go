package admin

import "net/http"

// kindPage is a kind with how it is served.
type kindPage struct {
	Name    string   `json:"kind"`
	Facts   []Fact   `json:"-"`
	Object  any      `json:"declaration,omitempty"` // as settle kinds --json prints it
	Control *control `json:"control,omitempty"`     // none: nobody ever paused it
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
		pages = append(pages, p)
	}
	return view{page: "kinds", title: texts["kinds"], data: map[string]any{"kinds": pages}}, nil
}
