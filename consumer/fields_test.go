package consumer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

type (
	innerFields struct {
		Same  int
		Deep  int `json:"deep"`
		Twin  int
		Loser int `json:"loser"`
	}
	otherFields struct {
		Twin  int
		Third int `json:"bad\\name"` //nolint:staticcheck // encoding/json ignores such a name
	}
	pointedFields struct{ FromPointer int }
	namedFields   struct{ Inside int }
	Counter       int

	thicket struct {
		innerFields
		otherFields
		*pointedFields
		namedFields `json:"named"`
		Counter
		Loser  int
		Winner int `json:"loser"`
		secret int
		Out    int `json:"-"`
		Dash   int `json:"-,"` //nolint:staticcheck // this one is called "-"
		Plain  int
		List   []thicket
		Ref    *thicket
		Empty  int `json:",omitempty"`
		Odd    int `json:"a b/c"`
	}
)

// TestFieldsAreThoseOfEncodingJSON asks encoding/json itself which names reach a field exactly, and which by
// folding: a member reaches a field if a value of the wrong type in it is an error.
func TestFieldsAreThoseOfEncodingJSON(t *testing.T) {
	names := []string{
		"Same", "Deep", "deep", "Twin", "loser", "Loser", "Winner", "bad\\name", "Third", "FromPointer", "named",
		"Inside", "Counter", "innerFields", "otherFields", "pointedFields", "secret", "Out", "-", "Dash", "Plain", "List", "Ref",
		"Empty", "Odd", "a b/c", "nothing",
	}
	shape := shapeOf(reflect.TypeFor[thicket]())
	for _, name := range names {
		for _, variant := range []string{name, strings.ToUpper(name), strings.ToLower(name)} {
			_, exact := shape.fields[variant]
			_, folded := shape.folded[fold(variant)]
			if got, want := exact || folded, reachesField(t, variant); got != want {
				t.Errorf("member %q: known %v, encoding/json says %v", variant, got, want)
			}
		}
	}
}

func reachesField(t *testing.T, name string) bool {
	t.Helper()
	quoted, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	v := thicket{pointedFields: new(pointedFields), secret: 1}
	return json.Unmarshal(fmt.Appendf(nil, `{%s:"a string"}`, quoted), &v) != nil
}

func TestConformLeavesRecursiveTypesAlone(t *testing.T) {
	_, err := decodeJob[thicket](mustParse(t, `{"Ref":{"List":[{"Ref":{"plain":1}}]}}`))
	wantRefusal(t, err, "malformed", "member plain at offset 24: did you mean Plain")
}

type selfEmbedding struct {
	//nolint:unused // embedded only to be looked at
	*selfEmbedding
	Name string `json:"name"`
}

func TestConformEndsWhereATypeEmbedsItself(t *testing.T) {
	_, err := decodeJob[selfEmbedding](mustParse(t, `{"Name":"x"}`))
	wantRefusal(t, err, "malformed", "member Name at offset 1: did you mean name")
}

type rivals struct {
	rivalsBelow
	Picked  string
	Counter int `json:"Picked"`
	Near    string
}

type rivalsBelow struct{ Near int }

// Of two fields with one name encoding/json takes the less embedded, then the tagged one.
func TestFieldsOfOneName(t *testing.T) {
	_, err := decodeJob[rivals](mustParse(t, `{"Picked":1,"Near":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	fields := shapeOf(reflect.TypeFor[rivals]()).fields
	if got := fields["Picked"].typ.Kind(); got != reflect.Int {
		t.Errorf("Picked is taken for %s", got)
	}
	if got := fields["Near"].typ.Kind(); got != reflect.String {
		t.Errorf("Near is taken for %s", got)
	}
}
