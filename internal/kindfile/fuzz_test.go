package kindfile

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/settlemq/settle/handlers"
)

// A file of any bytes is read or refused with its problems, and what is read can be described.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sound))
	for _, name := range []string{reference, "../../deploy/kinds/report.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("settle: 1\nkinds: {a: {job: {\"[0]\": id}, key: \"${job[0]}\"}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, problems := Parse("kinds.yaml", text)
		for _, p := range problems {
			if p.Text == "" || p.Line < 0 {
				t.Errorf("%+v", p)
			}
		}
		if len(errorsAmong(problems)) > 0 {
			return
		}
		for _, k := range file.Kinds {
			def, err := k.Definition(Options{})
			if err != nil {
				t.Errorf("accepted, and not usable: %v", err)
				continue
			}
			_, _ = def.Key(Job{tree: map[string]any{}})
		}
	})
}

// No value of a job changes what a request is: the members of its body, the parts of its path, the headers.
func FuzzExpand(f *testing.F) {
	f.Add("1", "shop", "name", "note")
	f.Add("a/b", "a/../b", "\", \"admin\": true", "x\r\nX-Admin: 1")
	f.Add("%2F", "..", "${job.order}", "\u0000")
	f.Fuzz(func(t *testing.T, order, shop, name, note string) {
		k := parseSound(t)
		body, err := json.Marshal(map[string]any{"order": order, "shop": shop, "amount": 1, "customer": map[string]any{"name": name},
			"note": note, "lines": []string{name}})
		if err != nil {
			return
		}
		j := jobOf(t, string(body))
		key, err := definitionOf(t, k).Key(j)
		if err != nil {
			return
		}
		if parts := strings.Split(key, "/"); len(parts) != 3 || parts[0] != "invoice" {
			t.Errorf("key %q", key)
		}
		req, err := k.send.request(scope{job: j.tree, key: key, providerKey: key})
		if err != nil {
			t.Fatalf("the key let it pass: %v", err)
		}
		var members map[string]any
		if err := json.Unmarshal(req.Body, &members); err != nil {
			t.Fatalf("%v in %s", err, req.Body)
		}
		if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, []string{"amount", "lines", "note", "order", "text"}) {
			t.Errorf("members %v", got)
		}
		if len(req.Path) != 3 || len(req.Query) != 1 || len(req.Header) != 1 || strings.ContainsFunc(req.Header.Get("X-Shop"), unicode.IsControl) {
			t.Errorf("%q %v %v", req.Path, req.Query, req.Header)
		}
	})
}

// Whatever a provider answers, an effect of a declared kind has a result that is JSON and an id that can be used, or it did
// not happen for all that is known; and "absent" is never what no rule says.
func FuzzAnswer(f *testing.F) {
	f.Add(201, `{"id":"inv_1"}`, true)
	f.Add(201, `{"id":{"id":"inv_1"}}`, true)
	f.Add(201, `{"id":"..","error":"not_found"}`, true)
	f.Add(404, `{"error":"not_found"}`, true)
	f.Add(404, `<html>not_found`, true)
	f.Add(404, `{"error":"not_found"}`, false)
	f.Add(200, `[1e999, {"id": null}]`, true)
	f.Fuzz(func(t *testing.T, status int, text string, whole bool) {
		d := declaredKind{Kind: parseSound(t)}
		said := reply{status: status, whole: whole}
		if body, err := decodeJSON([]byte(text)); err == nil && whole {
			said.body, said.isJSON = body, true
		}
		for i := range d.send.answers {
			r, err := d.effect(&d.send.answers[i], said)
			if err == nil && (!json.Valid(r.raw) || !handlers.UsableID(d.idOf(r))) {
				t.Errorf("%q becomes the result %s", text, r.raw)
			}
			if told := d.whatIsTold(&d.send.answers[i], said); told.raw != nil && !json.Valid(told.raw) {
				t.Errorf("%q tells %s", text, told.raw)
			}
		}
		rule, err := match(d.lookUp.answers, said)
		if err == nil && rule != nil && rule.means == absent && (!said.isJSON || status != 404) {
			t.Errorf("%d %q counts as absent", status, text)
		}
	})
}
