package consumertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/settlemq/settle/consumer"
)

// clockStep is more than what any clock in a key is likely to be cut to.
const clockStep = 1100 * time.Millisecond

// lint looks for keys that do not name the operation.
func lint[J, R any](t *testing.T, s Subject[J, R]) {
	t.Helper()
	k := s.Kind("http://127.0.0.1")
	job := s.Jobs[0]
	first := keyOf(t, k, job)
	if first == "" {
		t.Fatal("The key is empty: no two jobs could be told apart.")
	}
	if again := keyOf(t, k, job); again != first {
		t.Errorf("The same job gets the key %q and then %q: it is random or a count. In production each redelivery is a new job, and the customer is charged "+
			"once for each. Make it from the business event.", first, again)
		return
	}
	if other := keyOf(t, s.Kind("http://127.0.0.1"), job); other != first {
		t.Errorf("Two processes give one job the keys %q and %q: in production the process that takes over does not know what the first one did.", first, other)
	}
	<-time.After(clockStep)
	if later := keyOf(t, k, job); later != first {
		t.Errorf("The same job gets the key %q, and a second later %q: it contains the time. In production each repeat is a new job.", first, later)
	}
	lintBytes(t, k, job, first)
	lintWhole(t, k, job, first)
	lintOthers(t, k, s.Jobs)
}

func keyOf[J, R any](t *testing.T, k consumer.Kind[J, R], job J) string {
	t.Helper()
	key, err := k.Key(job)
	if err != nil {
		t.Fatalf("Key refuses a job of the subject: %v", err)
	}
	return key
}

// lintBytes looks for keys that depend on how a job is written down, or on members that honest repeats differ in.
func lintBytes[J, R any](t *testing.T, k consumer.Kind[J, R], job J, first string) {
	t.Helper()
	members, err := membersOf(job)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(members))
	slices.Reverse(names)
	var text bytes.Buffer
	for i, name := range names {
		fmt.Fprintf(&text, "%c\n  %q : %s", "{,"[min(i, 1)], name, members[name])
	}
	text.WriteString("}")
	var same J
	if err := json.Unmarshal(text.Bytes(), &same); err != nil {
		t.Fatalf("The job does not survive JSON: %v", err)
	}
	if key := keyOf(t, k, same); key != first {
		t.Errorf("The same job with its members in another order gets the key %q instead of %q: it is a hash of bytes. In production a publisher's new version "+
			"writes other bytes, and each open job is done again.", key, first)
	}
	for _, name := range k.Content.Volatile {
		body, ok := altered(members, name)
		if !ok {
			continue
		}
		var repeat J
		if json.Unmarshal(body, &repeat) == nil && keyOf(t, k, repeat) != first {
			t.Errorf("The key depends on %q, which differs between honest repeats (Content.Volatile): in production each repeat is a new job.", name)
		}
	}
}

// lintWhole looks for keys that are a hash of the whole job: each member changes them, and none can be read in them. A key that is
// put together of ids changes with each of them as well, but shows them.
func lintWhole[J, R any](t *testing.T, k consumer.Kind[J, R], job J, first string) {
	t.Helper()
	members, err := membersOf(job)
	if err != nil {
		t.Fatal(err)
	}
	hashed := 0
	for name, text := range members {
		body, ok := altered(members, name)
		var other J
		if !ok || slices.Contains(k.Content.Volatile, name) || json.Unmarshal(body, &other) != nil {
			continue
		}
		key, err := k.Key(other)
		if err == nil && key == first || readable(first, strings.Trim(string(text), `"`)) {
			return
		}
		hashed++
	}
	if hashed > 1 {
		t.Errorf("Each member of the job changes the key %q, and none can be read in it: it is a hash of the whole job. In production a corrected amount, or a "+
			"member that a publisher's new version adds, makes a second job of the same operation, and the customer is charged twice. Make it from the id of the business event.", first)
	}
}

// readable reports whether a value stands in a key: a short one as a word of its own, for a hash has all digits.
func readable(key, value string) bool {
	words := strings.FieldsFunc(key, func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
	return slices.Contains(words, value) || len(value) >= 4 && strings.Contains(key, value)
}

func lintOthers[J, R any](t *testing.T, k consumer.Kind[J, R], jobs []J) {
	t.Helper()
	seen := map[string]int{}
	for i, job := range jobs {
		key := keyOf(t, k, job)
		if n, ok := seen[key]; ok {
			t.Errorf("Jobs %d and %d are different operations and have the same key %q: in production the second one is refused or taken for done.", n, i, key)
		}
		seen[key] = i
	}
}

// membersOf are the top-level members of a job as they are published.
func membersOf[J any](job J) (members map[string]json.RawMessage, err error) {
	body, err := json.Marshal(job)
	if err == nil {
		err = json.Unmarshal(body, &members)
	}
	if err != nil {
		return nil, fmt.Errorf("the job is no JSON object: %w", err)
	}
	return members, nil
}

// changed are bodies with the same key and another content, by the member that differs.
func changed[J, R any](k consumer.Kind[J, R], job J) (map[string][]byte, error) {
	members, err := membersOf(job)
	if err != nil {
		return nil, err
	}
	first, err := k.Key(job)
	if err != nil {
		return nil, err
	}
	bodies := map[string][]byte{}
	for name := range members {
		body, ok := altered(members, name)
		var other J
		if !ok || slices.Contains(k.Content.Volatile, name) || json.Unmarshal(body, &other) != nil {
			continue
		}
		if key, err := k.Key(other); err == nil && key == first {
			bodies[name] = body
		}
	}
	return bodies, nil
}

// altered is a body in which one member is another one of its type. It reports false where that cannot be made up.
func altered(members map[string]json.RawMessage, name string) ([]byte, bool) {
	var value any
	if json.Unmarshal(members[name], &value) != nil {
		return nil, false
	}
	switch v := value.(type) {
	case float64:
		value = v + 1
	case string:
		value = v + "x"
	case bool:
		value = !v
	default:
		return nil, false
	}
	other := maps.Clone(members)
	text, err := json.Marshal(value)
	if err != nil {
		return nil, false
	}
	other[name] = text
	body, err := json.Marshal(other)
	return body, err == nil
}
