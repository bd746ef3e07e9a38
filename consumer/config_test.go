package consumer

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// plain is a kind that needs nothing.
func plain(name string) Kind[payJob, paid] {
	return Kind[payJob, paid]{Name: name, Contract: Contract{Effect: "a payment"}, Perform: performing(func() {}),
		Key: func(payJob) (string, error) { return "k", nil }, ExternalID: func(r paid) string { return r.ID }}
}

// says checks that an error names all of these.
func says(t *testing.T, what string, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q does not say %q", what, err, text)
		}
	}
}

func TestConfigZeroMeansDefaults(t *testing.T) {
	t.Parallel()
	c := Config{}.withDefaults()
	if c.Logger == nil || c.TracerProvider == nil || c.MeterProvider == nil {
		t.Error("no logger, tracer or meters")
	}
	c.Logger, c.TracerProvider, c.MeterProvider = nil, nil, nil
	if !reflect.DeepEqual(c, DefaultConfig()) {
		t.Errorf("zero means %+v, the defaults are %+v", c, DefaultConfig())
	}
	if err := c.check(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	if err := c.Policy.check("test.pay"); err != nil {
		t.Errorf("the default policy is refused: %v", err)
	}
	got := Config{Slots: 3, Policy: Policy{MaxFailures: 2}}.withDefaults()
	if got.Slots != 3 || got.Policy.MaxFailures != 2 || got.AckWait != DefaultConfig().AckWait || got.Policy.Deadline != DefaultConfig().Policy.Deadline {
		t.Errorf("set fields were lost: %+v", got)
	}
}

// Bad values are refused with the name of the field, all of them at once.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	bad := Config{Slots: -1, AckWait: time.Millisecond, Lease: 2 * time.Hour, DrainTimeout: -1, MaxBody: 1, MaxAckPending: -1, Replicas: -1,
		RecoverEvery: 99 * time.Millisecond, RecoverAfter: time.Millisecond, ProofRetention: -1, ReplayHorizon: -1}
	says(t, "config", bad.withDefaults().check(), "Slots", "AckWait", "at least 1s, not 1ms", "Lease", "DrainTimeout", "MaxBody", "MaxAckPending",
		"Replicas", "RecoverEvery", "at least 100ms", "RecoverAfter", "ProofRetention", "ReplayHorizon")
	for _, lease := range []time.Duration{time.Second - 1, time.Hour + 1} {
		says(t, "lease", Config{Lease: lease}.withDefaults().check(), "Lease must be 1s to 1h")
	}
	policy := Policy{Deadline: time.Second - 1, MaxFailures: -1, MaxAge: 1, BackoffMin: time.Millisecond, BackoffMax: time.Microsecond, Retention: -1}
	says(t, "policy", policy.over(DefaultConfig().Policy).check("test.pay"), "kind test.pay", "Deadline", "MaxFailures", "MaxAge", "BackoffMin", "BackoffMax", "Retention")
	says(t, "provider", Provider{KeyLifetime: -1}.check("test.pay"), "test.pay", "KeyLifetime")
	says(t, "provider", Provider{AbsentAfter: -1}.check("test.pay"), "test.pay", "AbsentAfter")
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	prefixed := func(name, prefix string) Kind[payJob, paid] {
		k := plain(name)
		k.Provider = Provider{Identity: "p", KeyPrefix: prefix}
		return k
	}
	bad := plain("test.pay")
	bad.Policy.Deadline = time.Millisecond
	for what, c := range map[string]struct {
		kinds []Definition
		says  []string
	}{
		"no kinds":            {nil, []string{"no kinds"}},
		"the same kind twice": {[]Definition{plain("test.pay"), plain("test.pay")}, []string{"test.pay", "twice"}},
		"an empty kind": {[]Definition{Kind[payJob, paid]{Name: "test.pay"}},
			[]string{"test.pay", "Contract.Effect", "Key", "Perform", "ExternalID"}},
		"a bad name":            {[]Definition{plain("Test Pay")}, []string{"Test Pay"}},
		"a bad policy":          {[]Definition{bad}, []string{"test.pay", "Deadline"}},
		"prefixes that clash":   {[]Definition{prefixed("a", "order_"), prefixed("b", "order_refund_")}, []string{"kinds a and b", "order_"}},
		"all that is wrong":     {[]Definition{bad, plain("Test Pay")}, []string{"Deadline", "Test Pay"}},
		"a prefix like derived": {[]Definition{prefixed("a", "s1-")}, []string{"kind a", "s1-"}},
	} {
		_, err := New(b.pool, b.js, Config{}, c.kinds...)
		says(t, what, err, c.says...)
	}
	_, err := New(nil, b.js, Config{}, plain("test.pay"))
	says(t, "no pool", err, "pool")
	e, err := New(b.pool, nil, Config{}, plain("test.pay"))
	if err != nil {
		t.Fatal(err)
	}
	says(t, "no JetStream", e.Run(t.Context()), "JetStream")
	_, err = New(b.pool, b.js, Config{Slots: -1}, plain("Test Pay"))
	says(t, "config and kinds", err, "Slots", "Test Pay")
}

// Another process may own a prefix that clashes with ours.
func TestRunRefusesAForeignPrefix(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`insert into settle.key_prefixes (provider, prefix, kind) values ('test', 'pay_refund_', 'test.refund')`)
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	says(t, "run", e.Run(t.Context()), "test.refund", "pay_refund_")
}

func TestRunRefusesAnotherSchema(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.exec(`update settle.schema_version set version = version + 1, usable_from = version + 1`)
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	says(t, "run", e.Run(t.Context()), "schema", "newer build")
}

// A kind's own policy goes before the engine's, and that before the defaults.
func TestPolicyOrder(t *testing.T) {
	t.Parallel()
	k := plain("test.pay")
	k.Policy = Policy{MaxFailures: 2}
	d, err := Describe(Config{Policy: Policy{MaxFailures: 7, MaxAge: time.Hour}}, k)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultConfig().Policy
	want.MaxFailures, want.MaxAge, want.Lease = 2, time.Hour, Strict
	if d.Policy != want {
		t.Errorf("policy %+v, want %+v", d.Policy, want)
	}
	if d.Name != "test.pay" || d.Subject != "jobs.test.pay" || d.Consumer != "test-pay" || d.HasLookup || d.Contract.Effect != "a payment" {
		t.Errorf("described as %+v", d)
	}
	p := DefaultProvider()
	if d.Provider.KeyLifetime != p.KeyLifetime || d.Provider.AbsentAfter != p.AbsentAfter || !slices.Equal(d.Provider.AppliedNothing, []int{401, 405, 429}) {
		t.Errorf("provider %+v", d.Provider)
	}
	if d.Local || !slices.Equal(d.Provider.Stored, []int{402}) || d.Provider.Status409 != MeansByBody || d.Provider.Status422 != MeansByBody {
		t.Errorf("provider %+v, local %v", d.Provider, d.Local)
	}
	says(t, "describe", func() error { _, err := Describe(Config{}, plain("A")); return err }(), "A")
	says(t, "describe", func() error { _, err := Describe(Config{Policy: Policy{MaxAge: 1}}, plain("a")); return err }(), "MaxAge")
}

// What a profile says about answers is checked, and an empty list is not the default.
func TestProviderAnswers(t *testing.T) {
	t.Parallel()
	described := func(p Provider) (Description, error) {
		k := plain("test.pay")
		k.Provider = p
		return Describe(Config{}, k)
	}
	d, err := described(Provider{Stored: []int{}, AppliedNothing: []int{}})
	if err != nil || len(d.Provider.Stored) != 0 || len(d.Provider.AppliedNothing) != 0 {
		t.Errorf("empty lists became %v and %v (%v)", d.Provider.Stored, d.Provider.AppliedNothing, err)
	}
	for text, p := range map[string]Provider{
		"Stored": {Stored: []int{402, 201}}, "AppliedNothing": {AppliedNothing: []int{200}}, "Status409": {Status409: MeansExists + 1}, "Status422": {Status422: -1},
	} {
		_, err := described(p)
		says(t, text, err, "test.pay", text)
	}
	for status, want := range map[int]bool{0: true, 402: true, 400: false, 500: false} {
		if got := DefaultProvider().storesRefusal(status); got != want {
			t.Errorf("a refusal with %d counts as stored: %v", status, got)
		}
	}
}

// Lenient is safe, and better, where the provider can be asked.
func TestDefaultLeasePolicy(t *testing.T) {
	t.Parallel()
	k := plain("test.pay")
	asks := k
	asks.Lookup = newPayProvider(t).lookup
	strict := asks
	strict.Policy.Lease = Strict
	for what, c := range map[string]struct {
		kind Kind[payJob, paid]
		conf LeasePolicy
		want LeasePolicy
	}{
		"no look-up":                         {k, DefaultLeasePolicy, Strict},
		"a look-up":                          {asks, DefaultLeasePolicy, Lenient},
		"the kind says":                      {strict, Lenient, Strict},
		"the engine says, against a look-up": {asks, Strict, Strict},
		"the engine says, without a look-up": {k, Lenient, Lenient},
	} {
		d, err := Describe(Config{Policy: Policy{Lease: c.conf}}, c.kind)
		if err != nil || d.Policy.Lease != c.want {
			t.Errorf("%s: policy %v, want %v (%v)", what, d.Policy.Lease, c.want, err)
		}
	}
}

// A key is usable for less than its lifetime: a request that passed the age check has to arrive before it is forgotten.
func TestUsableKey(t *testing.T) {
	t.Parallel()
	const deadline = 20 * time.Second
	for what, c := range map[string]struct {
		provider Provider
		want     time.Duration
	}{
		"a day":                     {Provider{KeyLifetime: 24 * time.Hour}, 24*time.Hour - 30*time.Second},
		"as long as the margin":     {Provider{KeyLifetime: 30 * time.Second}, 0},
		"shorter than the margin":   {Provider{KeyLifetime: time.Second}, 0},
		"no keys, whatever it says": {Provider{KeyLifetime: time.Hour, Unkeyed: true}, 0},
	} {
		if got := c.provider.usableKey(deadline); got != c.want {
			t.Errorf("%s: usable for %v, want %v", what, got, c.want)
		}
	}
}

func TestReadyBeforeRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e, err := New(b.pool, b.js, b.conf, b.kind)
	if err != nil {
		t.Fatal(err)
	}
	if e.Ready() == nil {
		t.Error("ready although it does not run")
	}
	e.running.Store(true)
	says(t, "ready", e.Ready(), "test.pay")
	e.kinds[0].bound.Store(true)
	if err := e.Ready(); err != nil {
		t.Errorf("bound, and not ready: %v", err)
	}
	e.database.failed(errors.New("gone"))
	says(t, "ready", e.Ready(), "gone")
}
