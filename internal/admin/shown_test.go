package admin

import (
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

func TestHiddenMembersAreNotShown(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"name":"Ann","order":1}`:                       `{"name":"[not shown]","order":1}`,
		`{"NAME":{"first":"Ann"},"n":12345678901234.50}`: `{"NAME":"[not shown]","n":12345678901234.50}`,
		`[{"to":[{"n\u0061me":["Ann",2]}]},null,true]`:   `[{"to":[{"name":"[not shown]"}]},null,true]`,
		`{"name":"Ann","name":"Bob"}`:                    `{"name":"[not shown]","name":"[not shown]"}`,
		`{"a":"<Ann> & \"co\"","b":{},"c":[]}`:           `{"a":"<Ann> & \"co\"","b":{},"c":[]}`,
		`{"type":"t","data_base64":"QW5u"}`:              `{"type":"t","data_base64":"[not shown]"}`, // what is in there cannot be told
		`"Ann"`:                                          `"Ann"`,                                    // it is no member
		`{"name":"Ann"`:                                  notShown, `name=Ann`: notShown, ``: ``,
	} {
		got := shown([]byte(body), []string{"name"})
		if flat := strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(got); flat != want {
			t.Errorf("%s is shown as %s, want %s", body, flat, want)
		}
	}
	if got := shown([]byte(`{"data_base64":"QW5u"}`), nil); !strings.Contains(got, "QW5u") {
		t.Errorf("where nothing is hidden: %s", got)
	}
	if got := shown([]byte(`name=Ann`), nil); got != "name=Ann" {
		t.Errorf("where nothing is hidden: %s", got)
	}
}

// What one kind hides is hidden wherever it may have got to, and of kinds that this program does not know nothing is shown.
func TestNothingIsShownThatMayHaveToBeHidden(t *testing.T) {
	t.Parallel()
	s := &screen{kinds: map[string]Kind{"mail": {Hidden: []string{"name"}}, "open": {}}}
	body := `{"name":"Ann","order":"o_1"}`
	for kind, shows := range map[string]string{"mail": "o_1", "open": "Ann", "other": kindNotKnown} {
		if got := s.shownOf(kind, []byte(body)); !strings.Contains(got, shows) || kind != "open" && strings.Contains(got, "Ann") {
			t.Errorf("%s: %s", kind, got)
		}
	}
	if got := s.shownOf("other", nil); got != "" {
		t.Errorf("where there is nothing: %s", got)
	}
	for _, c := range []struct {
		kind   string
		reason idemstore.Reason
		shows  string
	}{
		{"mail", idemstore.Conflict, "o_1"}, {"open", idemstore.Malformed, "Ann"}, {"other", idemstore.Conflict, kindNotKnown},
		{"", idemstore.Malformed, "o_1"}, {"mial", idemstore.UnknownKind, "o_1"},
	} {
		r := idemstore.KeptRefusal{Refusal: idemstore.Refusal{Kind: c.kind, Reason: c.reason, Body: []byte(body)}}
		if got := s.shownOfRefusal(r); !strings.Contains(got, c.shows) || c.kind != "open" && strings.Contains(got, "Ann") {
			t.Errorf("%q %s: %s", c.kind, c.reason, got)
		}
	}
}
