package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/consumer"
)

func TestContactKey(t *testing.T) {
	const at = `"updated_at":"2026-11-29T10:00:00Z"`
	for body, want := range map[string]string{ // "" is a refusal
		`{"source_id":"4419","event_id":"evt_9","version":7}`:                     "crm_contact_4419/evt_9",
		`{"source_id":4419,"event_id":9,"version":7}`:                             "crm_contact_4419/9",
		`{"source_id":"4419","event_id":"evt_9",` + at + `}`:                      "crm_contact_4419/evt_9",
		`{"source_id":"4419","version":7}`:                                        "crm_contact_4419//v7",
		`{"source_id":"4419","version":-7}`:                                       "crm_contact_4419//v-7",
		`{"source_id":"4419","version":7,` + at + `}`:                             "crm_contact_4419//v7",
		`{"source_id":"4419",` + at + `}`:                                         "crm_contact_4419//t2026-11-29T10:00:00Z",
		`{"source_id":"4419","updated_at":"2026-11-29T10:00:00.1234567+01:00"}`:   "crm_contact_4419//t2026-11-29T10:00:00.1234567+01:00",
		`{"source_id":"a/b","event_id":"c","version":1}`:                          "crm_contact_a%2Fb/c",
		`{"source_id":"a","event_id":"b/c","version":1}`:                          "crm_contact_a/b%2Fc",
		`{"source_id":"a%2Fb","event_id":"c","version":1}`:                        "crm_contact_a%252Fb/c",
		`{"source_id":"a","event_id":"/v7","version":1}`:                          "crm_contact_a/%2Fv7",
		`{"source_id":"a%","event_id":"%/","version":1}`:                          "crm_contact_a%25/%25%2F",
		`{"source_id":" 1","event_id":"é","version":1}`:                           "crm_contact_ 1/é",
		`{"event_id":"evt_9","version":7}`:                                        "",
		`{"source_id":null,"event_id":"evt_9","version":7}`:                       "",
		`{"source_id":"","event_id":"evt_9","version":7}`:                         "",
		`{"source_id":"  ","event_id":"evt_9","version":7}`:                       "",
		`{"source_id":4419.0,"event_id":"evt_9","version":7}`:                     "",
		`{"source_id":"4419","event_id":null,"version":7}`:                        "",
		`{"source_id":"4419","event_id":"","version":7}`:                          "",
		`{"source_id":"4419","event_id":{},"version":7}`:                          "",
		`{"source_id":"4419","event_id":"evt_9"}`:                                 "",
		`{"source_id":"4419","event_id":"evt_9","version":null,"updated_at":""}`:  "",
		`{"source_id":"4419","version":7,"updated_at":"yesterday"}`:               "",
		`{"source_id":"4419","version":7,"updated_at":"2026-11-29 10:00:00Z"}`:    "",
		`{"source_id":"4419","version":7,"updated_at":"2026-11-29T10:00:00"}`:     "",
		`{"source_id":"4419","version":7,"updated_at":"2026-13-29T10:00:00Z"}`:    "",
		`{"source_id":"4419","version":7,"updated_at":"2026-11-29T10:00:00,5Z"}`:  "",
		`{"source_id":"4419","version":7,"updated_at":"2026-11-29T10:00:00.Z"}`:   "",
		`{"source_id":"4419","updated_at":"2026-11-29T10:00:00.` + digits + `Z"}`: "",
		`{"source_id":"4419","version":7,"name":"a\u0000b"}`:                      "",
		`{"source_id":"4419","version":7,"email":"a\u0000b"}`:                     "",
	} {
		var j ContactJob
		if err := json.Unmarshal([]byte(body), &j); err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		key, err := j.key()
		if (err != nil) != (want == "") || err == nil && key != want {
			t.Errorf("%s: key %q, error %v; want %q", body, key, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "4419") || strings.Contains(err.Error(), "yesterday")) {
			t.Errorf("%s: the error quotes the body: %v", body, err)
		}
	}
}

var digits = strings.Repeat("7", maxMoment)

// A job that a publisher makes in Go reads back as itself.
func TestContactJobRoundTrip(t *testing.T) {
	seven := int64(7)
	for _, j := range []ContactJob{
		{SourceID: consumer.NewID("1"), Version: &seven, Name: "n"},
		{SourceID: consumer.NewID("1"), EventID: consumer.NewID("2"), UpdatedAt: "2026-11-29T10:00:00Z"},
	} {
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		var back ContactJob
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		want, _ := j.key()
		if key, err := back.key(); err != nil || key != want {
			t.Errorf("%s has the key %q (%v), want %q", text, key, err, want)
		}
	}
}

// Each moment is older than the next, however close they are and wherever they were written.
func TestMomentOrder(t *testing.T) {
	moments := []string{
		"2026-11-29T09:59:59.999999999999Z",
		"2026-11-29T10:00:00Z",
		"2026-11-29T10:00:00.0000000000001Z",
		"2026-11-29T10:00:00.1234561Z",
		"2026-11-29T11:00:00.12345619+01:00",
		"2026-11-29T10:00:00.1234562Z",
		"2026-11-29T10:00:00.9Z",
		"2026-11-29T08:00:01-02:00",
	}
	for i, a := range moments {
		for k, b := range moments {
			if got, want := order(t, a, b), compareInts(i, k); got != want {
				t.Errorf("%s against %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, equal := range [][2]string{
		{"2026-11-29T10:00:00Z", "2026-11-29T10:00:00.000Z"},
		{"2026-11-29T10:00:00.1200Z", "2026-11-29T12:00:00.12+02:00"},
	} {
		if order(t, equal[0], equal[1]) != 0 {
			t.Errorf("%s is not %s", equal[0], equal[1])
		}
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func order(t *testing.T, a, b string) int {
	t.Helper()
	x, errX := parseMoment(a)
	y, errY := parseMoment(b)
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	return x.compare(*y)
}

func TestEditionCompare(t *testing.T) {
	edition := func(version int64, at string) edition {
		j := ContactJob{UpdatedAt: at}
		if version != 0 {
			j.Version = &version
		}
		e, err := j.edition()
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const early, late = "2026-11-29T10:00:00Z", "2026-11-29T10:00:01Z"
	for _, c := range []struct {
		name       string
		av         int64
		at         string
		bv         int64
		bt         string
		want       int
		comparable bool
	}{
		{"versions", 1, "", 2, "", -1, true},
		{"versions count more than times", 2, early, 1, late, 1, true},
		{"equal versions, other times", 2, early, 2, late, 0, true},
		{"times", 0, early, 0, late, -1, true},
		{"one version only", 2, late, 0, early, 1, true},
		{"nothing in both", 2, "", 0, early, 0, false},
	} {
		got, ok := edition(c.av, c.at).compare(edition(c.bv, c.bt))
		if got != c.want || ok != c.comparable {
			t.Errorf("%s: %d %v", c.name, got, ok)
		}
	}
}

func TestChecksumCoversWhatIsStored(t *testing.T) {
	sum := func(body string) string {
		var j ContactJob
		if err := json.Unmarshal([]byte(body), &j); err != nil {
			t.Fatal(err)
		}
		e, err := j.edition()
		if err != nil {
			t.Fatal(err)
		}
		return j.checksum(e)
	}
	const first = `{"source_id":"1","event_id":"a","version":1,"updated_at":"2026-11-29T10:00:00Z","name":"n","email":"e"}`
	if sum(first) != sum(`{"source_id":"1","event_id":"b","version":1,"updated_at":"2026-11-29T11:00:00.0+01:00","name":"n","email":"e"}`) {
		t.Error("the same content has two checksums")
	}
	for _, change := range [][2]string{{`"n"`, `"m"`}, {`"e"`, `"f"`}, {`:1,`, `:2,`}, {"00Z", "01Z"}, {`"n","email":"e"`, `"ne","email":""`}} {
		if other := strings.Replace(first, change[0], change[1], 1); sum(other) == sum(first) {
			t.Errorf("%s has the same checksum", other)
		}
	}
}

func TestContactContractIsComplete(t *testing.T) {
	d, err := consumer.Describe(consumer.Config{}, Contact(ContactOptions{Policy: consumer.Policy{MaxFailures: 9}}))
	if err != nil {
		t.Fatal(err)
	}
	c := d.Contract
	if d.Subject != "jobs.contact.sync" || d.Policy.MaxFailures != 9 || c.Effect == "" || c.Rows == "" || c.Success == "" || c.SecondRun == "" || c.StopRule == "" {
		t.Errorf("%+v", d)
	}
}

// contact is an event of contact 42.
func contact(event string, version int, name string) string {
	return fmt.Sprintf(`{"source_id":"42","event_id":%q,"version":%d,"name":%q,"email":"a@b.example"}`, event, version, name)
}
