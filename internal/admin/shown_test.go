package admin

import (
	"strings"
	"testing"
)

func TestHiddenMembersAreNotShown(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"name":"Ann","order":1}`:                       `{"name":"[not shown]","order":1}`,
		`{"NAME":{"first":"Ann"},"n":12345678901234.50}`: `{"NAME":"[not shown]","n":12345678901234.50}`,
		`[{"to":[{"n\u0061me":["Ann",2]}]},null,true]`:   `[{"to":[{"name":"[not shown]"}]},null,true]`,
		`{"name":"Ann","name":"Bob"}`:                    `{"name":"[not shown]","name":"[not shown]"}`,
		`{"a":"<Ann> & \"co\"","b":{},"c":[]}`:           `{"a":"<Ann> & \"co\"","b":{},"c":[]}`,
		`"Ann"`:                                          `"Ann"`, // it is no member
		`{"name":"Ann"`:                                  notShown, `name=Ann`: notShown, ``: ``,
	} {
		got := shown([]byte(body), []string{"name"})
		if flat := strings.NewReplacer("\n", "", "  ", "", `": `, `":`).Replace(got); flat != want {
			t.Errorf("%s is shown as %s, want %s", body, flat, want)
		}
	}
	if got := shown([]byte(`name=Ann`), nil); got != "name=Ann" {
		t.Errorf("where nothing is hidden: %s", got)
	}
}
