package kindfile

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
)

func jobOf(t testing.TB, text string) Job {
	t.Helper()
	var j Job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		t.Fatal(err)
	}
	return j
}

func definitionOf(t testing.TB, k *Kind) consumer.Kind[Job, Result] {
	t.Helper()
	def, err := k.Definition(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return def
}

func TestValuesStayInTheirPlaceAndNumbersExact(t *testing.T) {
	t.Parallel()
	k := parseSound(t)
	j := jobOf(t, `{"order": 123456789012345678901234567890, "shop": "a/../b?c=d&e=f", "amount": 1.50e1, "lines": [{"n": 0.10}],
		"customer": {"name": "\", \"admin\": true, \"x\": \""}}`)
	req, err := k.send.request(scope{job: j.tree})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"order":"123456789012345678901234567890","amount":1.50e1,"text":"for \", \"admin\": true, \"x\": \"","lines":[{"n":0.10}]}`
	if string(req.Body) != want {
		t.Errorf("body %s, want %s", req.Body, want)
	}
	if len(req.Path) != 3 || req.Path[1] != "a/../b?c=d&e=f" {
		t.Errorf("path %q", req.Path)
	}
	if req.Route != "/shops/{job.shop}/invoices" {
		t.Errorf("error texts would show %s", req.Route)
	}
}

// What cannot be sent is refused when it comes, and the error shows nothing of it.
func TestBadInputIsRefusedWithoutAQuote(t *testing.T) {
	t.Parallel()
	def := definitionOf(t, parseSound(t))
	good := `{"order": "1", "shop": "s", "amount": 1, "customer": {"name": "n"}, "lines": []}`
	if key, err := def.Key(jobOf(t, good)); key != "invoice/s/1" || err != nil {
		t.Fatalf("%q %v", key, err)
	}
	for name, c := range map[string]struct{ old, new, says string }{
		"absent":           {`"shop": "s", `, ``, "shop"},
		"null":             {`"s"`, `null`, "shop"},
		"empty in a key":   {`"s"`, `""`, "shop"},
		"control":          {`"s"`, `"s3cret\r\nX-Admin: 1"`, "shop"},
		"fraction as id":   {`"1"`, `1.0`, "order"},
		"exponent as id":   {`"1"`, `1e3`, "order"},
		"blank id":         {`"1"`, `" "`, "order"},
		"text as number":   {`"amount": 1`, `"amount": "1"`, "amount"},
		"inside absent":    {`{"name": "n"}`, `{}`, "customer.name"},
		"other case":       {`{"name": "n"}`, `{"name": "n", "NAME": "s3cret"}`, "customer.name"},
		"other case above": {`"order"`, `"Order": "s3cret", "order"`, "order"},
		"no list":          {`[]`, `{}`, "lines"},
		"dots in a path":   {`"s"`, `".."`, "path"},
	} {
		key, err := def.Key(jobOf(t, strings.Replace(good, c.old, c.new, 1)))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: key %q, error %v", name, key, err)
		}
	}
}

func TestKeysOfOtherJobsAreOther(t *testing.T) {
	t.Parallel()
	def := definitionOf(t, parseSound(t))
	seen := map[string]string{}
	parts := []string{"a", "a/", "/a", "a/b", "b", "%", "%2F", "a%2Fb", "/", "//", "%25", "é", "a%", "%2"}
	for _, shop := range parts {
		for _, order := range parts {
			body, _ := json.Marshal(map[string]any{"shop": shop, "order": order, "amount": 1, "customer": map[string]any{"name": ""}, "lines": []int{}})
			key, err := def.Key(jobOf(t, string(body)))
			if err != nil {
				t.Fatal(err)
			}
			if other, taken := seen[key]; taken {
				t.Errorf("%s and %s share %s", other, body, key)
			}
			seen[key] = string(body)
		}
	}
	if _, ok := seen["invoice/a%2Fb/b"]; !ok {
		t.Error("a/b and b do not get the key of the reference")
	}
}

func TestHeadersTakeNoControlCharacters(t *testing.T) {
	t.Parallel()
	text := strings.Replace(sound, "X-Shop: ${job.shop}", "X-Note: ${job.note?}", 1)
	f, problems := Parse("", []byte(text))
	if len(errorsAmong(problems)) > 0 {
		t.Fatal(problems)
	}
	job := `{"order": 1, "shop": "s", "amount": 1, "customer": {"name": "n"}, "lines": [], "note": "s3cret\r\nX-Admin: 1"}`
	_, err := definitionOf(t, f.Kinds[0]).Key(jobOf(t, job))
	if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "header X-Note") {
		t.Errorf("error %v", err)
	}
}

func TestTheFirstRuleThatFitsCounts(t *testing.T) {
	t.Parallel()
	text := strings.Replace(sound, "        - {status: 201, means: done}", `        - {status: 201, where: {state: [ready, "1"]}, means: done}
        - {status: [200, 201], lacks: state, means: accepted}
        - {status: 409, where: {error.code: used}, means: conflict}
        - {status: 4xx, has: "errors[0]", means: refused}
        - {status: 410, means: refused}`, 1)
	f, problems := Parse("", []byte(text))
	if len(errorsAmong(problems)) > 0 {
		t.Fatal(problems)
	}
	whole := func(status int, body string) reply {
		v, err := decodeJSON([]byte(body))
		return reply{status: status, whole: true, isJSON: err == nil, body: v}
	}
	for name, c := range map[string]struct {
		said reply
		want means
	}{
		"equal":                  {whole(201, `{"state":"ready"}`), done},
		"a number as text":       {whole(201, `{"state":1}`), done},
		"another":                {whole(201, `{"state":"other"}`), ""},
		"not there":              {whole(201, `{}`), accepted},
		"null":                   {whole(200, `{"state":null}`), accepted},
		"no JSON lacks nothing":  {whole(200, `<html>`), ""},
		"inside":                 {whole(409, `{"error":{"code":"used"}}`), conflict},
		"inside of a text":       {whole(409, `{"error":"used"}`), ""},
		"class":                  {whole(418, `{"errors":["x"]}`), refused},
		"class, empty":           {whole(418, `{"errors":[]}`), ""},
		"by status alone":        {whole(410, `<html>`), refused},
		"status that none names": {whole(500, `{}`), ""},
	} {
		rule, err := match(f.Kinds[0].send.answers, c.said)
		if got := meansOf(rule); got != c.want || err != nil {
			t.Errorf("%s: %q %v, want %q", name, got, err, c.want)
		}
	}
	if rule, err := match(f.Kinds[0].send.answers, reply{status: 410}); err == nil {
		t.Errorf("a cut answer means %q, although an earlier rule looks into it", meansOf(rule))
	}
}

func meansOf(r *rule) means {
	if r == nil {
		return ""
	}
	return r.means
}

func TestSecretsAreReadLateAndNeverShown(t *testing.T) {
	const variable = "SETTLE_TEST_KINDFILE_URL"
	dir := t.TempDir()
	text := strings.NewReplacer("http://127.0.0.1:1/base", "${env:"+variable+"}", "keyed: true",
		"keyed: true\n      headers:\n        Authorization: Bearer ${file:token}").Replace(sound)
	f, problems := Parse(filepath.Join(dir, "kinds.yaml"), []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	err := f.Ready()
	if err == nil || !strings.Contains(err.Error(), variable) || !strings.Contains(err.Error(), "token") || !strings.Contains(err.Error(), ":14: invoice.issue: ") {
		t.Errorf("what is missing: %v", err)
	}
	definitionOf(t, f.Kinds[0]) // publishers need no secret

	t.Setenv(variable, "http://user:s3cret@h/base")
	for _, token := range []string{"s3cret-1", "s3cret-2"} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		if err := f.Kinds[0].authorize(header); err != nil || header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%v %v", header, err)
		}
	}
	if err := f.Ready(); err != nil {
		t.Errorf("all is there: %v", err)
	}
	if id := definitionOf(t, f.Kinds[0]).Provider.Identity; id != "http://h/base" {
		t.Errorf("identity %s", id)
	}
	for _, bad := range []string{"", "s3cret\r\nX: 1"} {
		if err := os.WriteFile(filepath.Join(dir, "token"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.Ready(); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	t.Setenv(variable, "s3cret://h")
	if err := f.Ready(); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("bad URL: %v", err)
	}
}

func TestAnEffectHasAnIDThatCanBeUsed(t *testing.T) {
	t.Parallel()
	d := declaredKind{Kind: parseSound(t)}
	for body, usable := range map[string]bool{
		`{"id": "inv_1"}`: true, `{"id": 12345678901234567890}`: true, `{"id": ""}`: false, `{"id": ".."}`: false, `{"id": "a\u0000b"}`: false,
		`{"id": null}`: false, `{}`: false, `{"id": {"a": 1}}`: false, `{"id": " "}`: false, `[]`: false,
	} {
		v, err := decodeJSON([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.effect(&d.send.answers[0], reply{status: 201, whole: true, isJSON: true, body: v})
		if (err == nil) != usable {
			t.Errorf("%s: %v", body, err)
		}
		if usable && d.idOf(r) != strings.Trim(strings.TrimSuffix(strings.TrimPrefix(body, `{"id": `), "}"), `"`) {
			t.Errorf("%s: id %s", body, d.idOf(r))
		}
	}
}

func TestWhatALookUpTellsIsCompared(t *testing.T) {
	t.Parallel()
	l := parseSound(t).lookUp
	job := jobOf(t, `{"order": 7}`).tree
	for body, want := range map[string]bool{`{"order": "7"}`: true, `{"order": 7}`: true, `{}`: true, `{"order": null}`: true, `{"order": "8"}`: false, `{"order": 7.0}`: false} {
		v, _ := decodeJSON([]byte(body))
		if same, err := l.isSame(job, v); same != want || err != nil {
			t.Errorf("%s: %v %v", body, same, err)
		}
	}
	if same, err := l.isSame(job, map[string]any{"order": []any{}}); same || err == nil {
		t.Errorf("a list is compared: %v %v", same, err)
	}
}
