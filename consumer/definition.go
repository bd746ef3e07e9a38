package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/idemstore"
)

// definition is a kind with its types erased. The only type assertions are in Kind.define.
type definition struct {
	name     string
	contract Contract
	policy   Policy
	provider Provider
	content  Content

	decode     func(*document) (any, error)
	key        func(any) (string, error)
	refs       func(any) Refs
	entity     func(any) (string, Version)
	check      func(context.Context, DB, any) (any, bool, error)
	perform    func(context.Context, *attempt) (any, error)
	lookup     func(context.Context, *attempt) (any, Verdict, error)
	externalID func(any) string
	commit     func(*Writes, final) error

	apply func(context.Context, pgx.Tx, *attempt) (any, error) // local kinds: instead of the five above
	steps func(*attempt) []step                                // of a step kind, whose apply is what comes after them

	results results
}

// results are what a person, or a row, may bring in place of a handler.
type results struct {
	given  func([]byte) (any, error) // decodes what a person gives
	stored func([]byte) (any, error) // decodes what is on the row
	none   func() any                // the zero value
}

func resultsOf[R any]() results {
	return results{
		given:  func(raw []byte) (any, error) { return contain(func() (any, error) { return decodeResult[R](raw) }) },
		stored: func(raw []byte) (any, error) { return contain(func() (any, error) { return readResult[R](raw) }) },
		none:   func() any { var r R; return r },
	}
}

// final is a Final with its types erased.
type final struct {
	job, result         any
	key                 string
	taskID              int64
	attempt             int
	refused, externalID string
	source              Source
}

// define erases the types of a kind, or names what it lacks.
func (k Kind[J, R]) define() (*definition, error) {
	if err := k.missing(); err != nil {
		return nil, err
	}
	d := &definition{name: k.Name, contract: k.Contract, policy: k.Policy, provider: k.Provider, content: k.Content, results: resultsOf[R]()}
	d.decode = func(doc *document) (any, error) { return decodeJob[J](doc, k.Content.IDs...) }
	d.key = func(j any) (string, error) { return k.Key(j.(J)) }
	d.externalID = func(r any) string { return k.ExternalID(r.(R)) }
	d.perform = func(ctx context.Context, a *attempt) (any, error) { return k.Perform(ctx, typed[J](a)) }
	if k.Refs != nil {
		d.refs = func(j any) Refs { return k.Refs(j.(J)) }
	}
	if k.Entity != nil {
		d.entity = func(j any) (string, Version) { return k.Entity(j.(J)) }
	}
	if k.Check != nil {
		d.check = func(ctx context.Context, db DB, j any) (any, bool, error) { return k.Check(ctx, db, j.(J)) }
	}
	if k.Lookup != nil {
		d.lookup = func(ctx context.Context, a *attempt) (any, Verdict, error) { return k.Lookup(ctx, typed[J](a)) }
	}
	if k.Commit != nil {
		d.commit = func(w *Writes, f final) error {
			return k.Commit(w, Final[J, R]{Job: f.job.(J), Key: f.key, TaskID: f.taskID, Attempt: f.attempt,
				Result: f.result.(R), Refused: f.refused, ExternalID: f.externalID, Source: f.source})
		}
	}
	return d, nil
}

// typed is an attempt as a handler sees it.
func typed[J any](a *attempt) *Attempt[J] {
	out := &Attempt[J]{Job: a.job.(J), TaskID: a.task.TaskID, Number: a.task.Attempt, Key: a.task.Key,
		ProviderKey: a.task.ProviderKey, ExternalID: a.knownID(), Deadline: a.deadline, run: a}
	if a.task.EvidenceID != "" {
		out.Evidence = []string{a.task.EvidenceID}
	}
	return out
}

func (k Kind[J, R]) missing() error {
	return missing(k.Name, map[string]bool{"Contract.Effect": k.Contract.Effect != "", "Key": k.Key != nil,
		"Perform": k.Perform != nil, "ExternalID": k.ExternalID != nil})
}

// missing names the required parts that a kind lacks.
func missing(kind string, there map[string]bool) error {
	errs := []error{checkKindName(kind)}
	for _, part := range slices.Sorted(maps.Keys(there)) {
		if !there[part] {
			errs = append(errs, fmt.Errorf("kind %q: %s is missing", kind, part))
		}
	}
	return errors.Join(errs...)
}

// complete fills in defaults and checks what is left.
func (d *definition) complete(c Config) error {
	d.policy = d.policy.over(c.Policy)
	d.provider = d.provider.withDefaults()
	if d.policy.Lease == DefaultLeasePolicy {
		d.policy.Lease = Strict
		if d.lookup != nil || d.apply != nil {
			d.policy.Lease = Lenient
		}
	}
	return errors.Join(d.policy.check(d.name), d.provider.check(d.name))
}

// defineAll erases kinds and refuses what cannot work together, naming it.
func defineAll(c Config, kinds []Definition) ([]*definition, error) {
	var (
		defs     []*definition
		errs     []error
		prefixes []prefixOf
		seen     = map[string]bool{}
	)
	for _, k := range kinds {
		d, err := k.define()
		if err == nil {
			err = d.complete(c)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if seen[d.name] {
			errs = append(errs, fmt.Errorf("kind %s is declared twice", d.name))
		}
		seen[d.name] = true
		defs = append(defs, d)
		prefixes = append(prefixes, prefixOf{kind: d.name, provider: d.provider.Identity, prefix: d.provider.KeyPrefix})
	}
	if len(kinds) == 0 {
		errs = append(errs, errors.New("no kinds: an engine needs at least one"))
	}
	return defs, errors.Join(append(errs, checkPrefixes(prefixes), checkCaps(defs))...)
}

// job is a decoded message.
type job struct {
	value   any
	key     string
	payload []byte
	hash    []byte
	refs    []idemstore.Ref
	event   idemstore.EventName // of the CloudEvent that it came in
}

// read decodes a body into a job with its key. The kind's own limit goes before maxBody. Errors are *refusalError.
func (d *definition) read(body []byte, maxBody int) (job, error) {
	doc, err := parse(body, or(d.content.MaxBody, maxBody))
	if err != nil {
		return job{}, err
	}
	value, err := contain(func() (any, error) { return d.decode(doc) })
	if err != nil {
		return job{}, err
	}
	key, err := d.keyOf(value)
	if err == nil {
		err = d.checkEntity(value)
	}
	if err != nil {
		return job{}, err
	}
	return job{value: value, key: key, payload: body, hash: doc.hash(d.content), refs: d.refsOf(value)}, nil
}

// decodeRow decodes a stored payload. It was within the limits when it was accepted.
func (d *definition) decodeRow(payload []byte) (any, error) {
	doc, err := parse(payload, len(payload))
	if err != nil {
		return nil, err
	}
	return contain(func() (any, error) { return d.decode(doc) })
}

// keyOf asks the kind for the key. A panic there is a bad message, not a bad process.
func (d *definition) keyOf(value any) (key string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &refusalError{reason: idemstore.BadKey, detail: "the key function panicked"}
		}
	}()
	key, err = d.key(value)
	if err != nil {
		return "", &refusalError{reason: idemstore.BadKey, detail: errorText(err)} // the kind's own text may quote the id
	}
	return key, checkKey(key)
}

// providerKey is the key of the effect of a task. A local job has none: it sends nothing.
func (d *definition) providerKey(key string) string {
	if d.apply != nil {
		return ""
	}
	return providerKey(d.name, key, d.provider.KeyPrefix)
}

// maxRef bounds a search term; a longer one cannot be indexed and is left out.
const maxRef = 512

func (d *definition) refsOf(value any) (out []idemstore.Ref) {
	if d.refs == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			out = nil // search terms are a convenience: without them the job still runs
		}
	}()
	for name, v := range d.refs(value) {
		v, _ = cleanText([]byte(v), maxRef)
		if name != "" && len(name) <= 64 && v != "" && len(v) <= maxRef {
			out = append(out, idemstore.Ref{Name: name, Value: v})
		}
	}
	sort.Slice(out, func(i, k int) bool { return out[i].Name < out[k].Name })
	return out
}

// Description is a kind as `settle kinds` prints it, with all defaults filled in.
type Description struct {
	Name          string   `json:"name"`
	Subject       string   `json:"subject"`
	Consumer      string   `json:"consumer"`
	Contract      Contract `json:"contract"`
	Policy        Policy   `json:"policy"`
	Provider      Provider `json:"provider"`
	HasLookup     bool     `json:"has_lookup"`
	HasOrderGuard bool     `json:"has_order_guard"` // by Entity: no event is sent after a newer one
	Local         bool     `json:"local"`           // it has no provider; Provider says nothing
	HasSteps      bool     `json:"has_steps"`       // a StepKind: record by record, each with its progress

	// UsableKey is how long a resend may rest on the provider's key: its lifetime less what a request may take on its way;
	// 0 where the provider keeps none, or for no longer than that. LongestDelay is the longest pause between two attempts.
	UsableKey, LongestDelay time.Duration `json:"-"`
}

// Describe gives the declaration of a kind as an engine with this configuration would run it. It does no I/O; the error names
// what is missing or wrong.
func Describe(c Config, kind Definition) (Description, error) {
	d, err := kind.define()
	if err != nil {
		return Description{}, err
	}
	if err := d.complete(c.withDefaults()); err != nil {
		return Description{}, err
	}
	return Description{Name: d.name, Subject: subject(d.name), Consumer: consumerName(d.name), Contract: d.contract,
		Policy: d.policy, Provider: d.provider, HasLookup: d.lookup != nil, HasOrderGuard: d.entity != nil,
		Local: d.apply != nil, HasSteps: d.steps != nil,
		UsableKey: d.provider.usableKey(d.policy.Deadline), LongestDelay: d.policy.longestDelay(d.provider)}, nil
}
