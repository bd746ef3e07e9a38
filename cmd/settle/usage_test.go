package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/settlemq/settle/consumer"
)

// The table of the documentation, without what has no feature yet.
var documented = map[string]string{
	"DATABASE_URL": "", "NATS_URL": "", "NATS_CREDS": "", "NATS_CA": "", "NATS_CERT": "", "NATS_KEY": "", "NATS_INBOX": "",
	"SETTLE_PROVIDER_URL": "", "SETTLE_LEASE_POLICY": "",
	"SETTLE_SLOTS":                 "64",
	"SETTLE_ACK_WAIT":              "30s",
	"SETTLE_LEASE":                 "30s",
	"SETTLE_DEADLINE":              "20s",
	"SETTLE_PROVIDER_TIMEOUT":      "10s",
	"SETTLE_PROVIDER_KEYED":        "true",
	"SETTLE_PROVIDER_KEY_LIFETIME": "24h",
	"SETTLE_ABSENT_AFTER":          "15s",
	"SETTLE_UNKEYED_RESEND":        "false",
	"SETTLE_MAX_FAILURES":          "5",
	"SETTLE_MAX_AGE":               "24h",
	"SETTLE_BACKOFF_MIN":           "1s",
	"SETTLE_BACKOFF_MAX":           "5m",
	"SETTLE_RETRY_AFTER_MAX":       "1h",
	"SETTLE_MISCONFIGURED_DELAY":   "5m",
	"SETTLE_MAX_ACK_PENDING":       "20000",
	"SETTLE_MAX_BODY":              "262144",
	"SETTLE_DRAIN_TIMEOUT":         "20s",
	"SETTLE_EVENT_SOURCE":          `"/settle"`,
	"SETTLE_EVENT_TYPE_PREFIX":     "",
	"SETTLE_RETENTION":             "168h, of charges 720h",
	"SETTLE_PROOF_RETENTION":       "0s",
	"SETTLE_REPLAY_HORIZON":        "72h",
	"SETTLE_RECOVER_EVERY":         "15s",
	"SETTLE_RECOVER_AFTER":         "15m",
	"SETTLE_CREATE_ORDERS":         "false",
	"SETTLE_TRACE":                 `"child"`,
	"SETTLE_TRACE_KEEP":            `"sampled"`,
	"SETTLE_HASH_KEYS":             "false",
	"SETTLE_HTTP_ADDR":             `"127.0.0.1:8089"`,
}

func TestWorkHelpShowsEveryFlagWithVariableAndDefault(t *testing.T) {
	t.Parallel()
	code, help, _ := runSettle(t, nil, nil, "work", "--help")
	if code != exitDone {
		t.Fatalf("exit %d", code)
	}
	for variable, value := range documented {
		line := regexp.MustCompile(`(?m)^.*\[\$` + variable + `(, \$` + variable + `_FILE)?\]$`).FindString(help)
		if line == "" {
			t.Errorf("help does not show %s", variable)
			continue
		}
		if value != "" && !strings.Contains(line, "(default: "+value+")") {
			t.Errorf("help shows another default than %s: %s", value, line)
		}
		flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "SETTLE_"), "_", "-"))
		if !strings.Contains(line, flag+" ") {
			t.Errorf("%s does not belong to %s: %s", variable, flag, line)
		}
	}
}

func TestEveryFlagOfAServiceHasAVariable(t *testing.T) {
	t.Parallel()
	for _, cmd := range []*cli.Command{workCommand(), providerCommand()} {
		for _, f := range cmd.Flags {
			if len(f.(cli.DocGenerationFlag).GetEnvVars()) == 0 {
				t.Errorf("%s --%s has no variable", cmd.Name, f.Names()[0])
			}
		}
	}
}

func TestWrongUseExitsWith2AndOneLine(t *testing.T) {
	t.Parallel()
	servers := map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1"}
	with := func(name, value string) map[string]string {
		env := map[string]string{name: value}
		for n, v := range servers {
			if n != name {
				env[n] = v
			}
		}
		return env
	}
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		says []string
	}{
		"unknown command":       {nil, []string{"wrok"}, []string{"wrok", "settle --help"}}, //nolint:misspell // on purpose
		"unknown verb":          {nil, []string{"tasks", "delete"}, []string{"delete"}},
		"unknown flag":          {nil, []string{"work", "--slot", "5"}, []string{"-slot", "settle work --help"}},
		"argument too many":     {nil, []string{"work", "now"}, []string{"now"}},
		"argument missing":      {nil, []string{"tasks", "show"}, []string{"TASK"}},
		"no database":           {with("DATABASE_URL", ""), []string{"work"}, []string{"--database-url", "DATABASE_URL"}},
		"no NATS":               {map[string]string{"SETTLE_HTTP_ADDR": "off"}, []string{"publish"}, []string{"--nats-url", "NATS_URL"}},
		"no provider":           {with("SETTLE_PROVIDER_URL", ""), []string{"work"}, []string{"--provider-url", "SETTLE_PROVIDER_URL"}},
		"provider unreadable":   {with("SETTLE_PROVIDER_URL", "ftp://u:secret@h"), []string{"work"}, []string{"--provider-url", "SETTLE_PROVIDER_URL", "http"}},
		"database unreadable":   {with("DATABASE_URL", "postgres://a:se/cret@h"), []string{"work"}, []string{"DATABASE_URL"}},
		"short ack wait":        {servers, []string{"work", "--ack-wait", "999ms"}, []string{"ack-wait", "SETTLE_ACK_WAIT", "at least 1s"}},
		"short lease, variable": {with("SETTLE_LEASE", "5ms"), []string{"work"}, []string{"SETTLE_LEASE", "lease", "at least 1s"}},
		"short deadline":        {servers, []string{"work", "--deadline", "0s"}, []string{"deadline", "SETTLE_DEADLINE"}},
		"short age":             {servers, []string{"work", "--max-age", "10ms"}, []string{"max-age", "SETTLE_MAX_AGE"}},
		"short back-off":        {servers, []string{"work", "--backoff-min", "9ms"}, []string{"backoff-min", "SETTLE_BACKOFF_MIN", "at least 10ms"}},
		"back-off upside down":  {servers, []string{"work", "--backoff-max", "20ms"}, []string{"--backoff-min", "--backoff-max", "SETTLE_BACKOFF_MAX"}},
		"no duration":           {with("SETTLE_BACKOFF_MAX", "soon"), []string{"work"}, []string{"SETTLE_BACKOFF_MAX", "backoff-max", "soon"}},
		"no number":             {servers, []string{"work", "--slots", "many"}, []string{"slots", "many"}},
		"no slots":              {servers, []string{"work", "--slots", "0"}, []string{"slots", "SETTLE_SLOTS"}},
		"unknown policy":        {with("SETTLE_LEASE_POLICY", "loose"), []string{"work"}, []string{"SETTLE_LEASE_POLICY", "strict, lenient"}},
		"unknown kind":          {with("SETTLE_KIND", "payment.refund"), []string{"work"}, []string{"SETTLE_KIND", "payment.refund", "payment.charge"}},
		"unknown trace form":    {with("SETTLE_TRACE", "sideways"), []string{"work"}, []string{"SETTLE_TRACE", "child, link"}},
		"trouble misspelt":      {servers, []string{"work", "--trace-keep", "all"}, []string{"SETTLE_TRACE_KEEP", "sampled, trouble"}},
		"hash keys, or not":     {with("SETTLE_HASH_KEYS", "perhaps"), []string{"work"}, []string{"SETTLE_HASH_KEYS"}},
		"inbox elsewhere":       {with("NATS_INBOX", "answers"), []string{"publish"}, []string{"NATS_INBOX", "_INBOX."}},
		"half a certificate":    {with("NATS_CERT", "cert.pem"), []string{"publish"}, []string{"NATS_CERT", "NATS_KEY"}},
		"unusable address":      {with("SETTLE_HTTP_ADDR", "nowhere"), []string{"work"}, []string{"SETTLE_HTTP_ADDR"}},
		"unknown status":        {servers, []string{"tasks", "list", "--status", "gone"}, []string{"status", "needs_review"}},
		"no limit":              {servers, []string{"tasks", "list", "--limit", "0"}, []string{"limit"}},
		"unrouted, no NATS":     {map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/x"}, []string{"tasks", "list", "--unrouted"}, []string{"NATS_URL"}},
		"unrouted by status":    {servers, []string{"tasks", "list", "--unrouted", "--status", "failed"}, []string{"--status", "--unrouted"}},
		"act without reason":    {servers, []string{"tasks", "retry", "1"}, []string{"--reason", "settle tasks retry --help"}},
		"act without task":      {servers, []string{"tasks", "cancel", "--reason", "so"}, []string{"TASK"}},
		"act on no task":        {servers, []string{"tasks", "retry", "1", "order_1", "--reason", "so"}, []string{"order_1", "KIND/KEY"}},
		"ask nobody":            {with("SETTLE_PROVIDER_URL", ""), []string{"tasks", "ask", "1"}, []string{"--provider-url", "SETTLE_PROVIDER_URL"}},
		"resolve as what":       {servers, []string{"tasks", "resolve", "1", "--reason", "so"}, []string{"--as"}},
		"resolve as unknown":    {servers, []string{"tasks", "resolve", "1", "--reason", "so", "--as", "unknown"}, []string{"finished or failed"}},
		"result not there":      {servers, []string{"tasks", "resolve", "1", "--reason", "so", "--as", "finished", "--result", "no-such-file"}, []string{"no-such-file"}},
		"supersede by what":     {servers, []string{"tasks", "supersede", "1", "--reason", "so"}, []string{"--refusal"}},
		"as shown, of several":  {servers, []string{"tasks", "retry", "1", "2", "--reason", "so", "--if-attempts", "3"}, []string{"--if-attempts"}},
		"as shown, never":       {servers, []string{"tasks", "retry", "1", "--reason", "so", "--if-attempts", "0"}, []string{"if-attempts", "at least 1"}},
		"rare recovery":         {servers, []string{"work", "--recover-every", "99ms"}, []string{"recover-every", "SETTLE_RECOVER_EVERY", "at least 100ms"}},
		"never stuck":           {with("SETTLE_RECOVER_AFTER", "1ms"), []string{"work"}, []string{"SETTLE_RECOVER_AFTER", "at least 1s"}},
		"recover for no reason": {servers, []string{"recover"}, []string{"--reason", "settle recover --help"}},
		"recover, no provider":  {with("SETTLE_PROVIDER_URL", ""), []string{"recover", "--reason", "x"}, []string{"--provider-url"}},
		"recover, no database":  {with("DATABASE_URL", ""), []string{"recover", "--reason", "x"}, []string{"DATABASE_URL"}},
		"recover, unknown kind": {servers, []string{"recover", "--reason", "x", "--kind", "payment.refund"}, []string{"payment.refund", "payment.charge"}},
		"recover the future":    {servers, []string{"recover", "--reason", "x", "--older-than", "-1s"}, []string{"older-than", "at least 0s"}},
		"recover an empty time": {servers, []string{"recover", "--reason", "x", "--older-than", "2h", "--window", "2h"}, []string{"--older-than", "--window"}},
		"recover for ever":      {servers, []string{"recover", "--reason", "x", "--window", "87601h"}, []string{"window", "87600h"}},
		"recover no time":       {servers, []string{"recover", "--dry-run", "--window", "soon"}, []string{"window", "soon"}},
		"recover none":          {servers, []string{"recover", "--dry-run", "--limit", "0"}, []string{"limit", "1 to 100000"}},
		"recover all":           {servers, []string{"recover", "--dry-run", "--limit", "100001"}, []string{"limit", "1 to 100000"}},
		"recover one":           {servers, []string{"recover", "payment.charge/order_1"}, []string{"order_1"}},
		"no breaker":            {with("SETTLE_BREAKER", "0"), []string{"work"}, []string{"SETTLE_BREAKER", "breaker", "off"}},
		"webhook unreadable":    {with("SETTLE_ALERT_WEBHOOK", "hooks/secret"), []string{"work"}, []string{"--alert-webhook", "SETTLE_ALERT_WEBHOOK", "http"}},
		"subject of a job":      {servers, []string{"work", "--alert-subject", "jobs.alert"}, []string{"--alert-subject", "SETTLE_ALERT_SUBJECT", "jobs."}},
		"negative rate":         {servers, []string{"work", "--provider-max-per-second", "-1"}, []string{"provider-max-per-second", "SETTLE_PROVIDER_MAX_PER_SECOND"}},
		"negative flights":      {servers, []string{"work", "--provider-max-in-flight", "-1"}, []string{"provider-max-in-flight"}},
		"pause what":            {servers, []string{"pause", "--reason", "so"}, []string{"KIND"}},
		"pause why":             {servers, []string{"pause", "payment.charge"}, []string{"--reason"}},
		"pause for a blank":     {servers, []string{"pause", "payment.charge", "--reason", " "}, []string{"--reason"}},
		"resume why":            {servers, []string{"resume", "payment.charge"}, []string{"--reason"}},
		"wait for nothing":      {servers, []string{"publish", "--wait=0s"}, []string{"wait", "at most 24h"}},
		"wait soon":             {servers, []string{"publish", "--wait=soon"}, []string{"wait", "soon"}},
		"missing input":         {servers, []string{"publish", "no-such-file"}, []string{"no-such-file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := runSettle(t, c.env, nil, c.args...)
			if code != exitUsage {
				t.Errorf("exit %d, want %d", code, exitUsage)
			}
			if out != "" || strings.Count(errOut, "\n") != 1 {
				t.Errorf("stdout %q, stderr %q; want one line on stderr", out, errOut)
			}
			for _, s := range c.says {
				if !strings.Contains(errOut, s) {
					t.Errorf("%q is not in %q", s, errOut)
				}
			}
			if strings.Contains(errOut, "cret") {
				t.Errorf("shows a password: %s", errOut)
			}
		})
	}
}

func TestAnEmptyVariableIsAnUnsetOne(t *testing.T) {
	t.Parallel()
	code, out, errOut := runSettle(t, map[string]string{"SETTLE_DEADLINE": "", "SETTLE_LEASE_POLICY": "", "SETTLE_KIND": ""}, nil, "kinds", "--json")
	if code != exitDone || !strings.Contains(out, `"deadline":"20s"`) {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errOut)
	}
}

func TestKindsPrintsContractAndPolicy(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SETTLE_MAX_FAILURES": "7", "SETTLE_PROVIDER_KEYED": "false", "SETTLE_LEASE_POLICY": "strict"}
	code, out, errOut := runSettle(t, env, nil, "kinds", "--json")
	if code != exitDone {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	kinds := map[string]kindObject{}
	for line := range strings.Lines(out) {
		var k kindObject
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		kinds[k.Kind] = k
	}
	for _, name := range []string{"payment.charge", "report.create"} {
		k, ok := kinds[name]
		if !ok {
			t.Errorf("%s is missing in %s", name, out)
			continue
		}
		c := k.Contract
		if c.Effect == "" || c.Rows == "" || c.Success == "" || c.SecondRun == "" || c.StopRule == "" {
			t.Errorf("the contract of %s is incomplete: %+v", name, c)
		}
		if k.Subject != "jobs."+name || k.Consumer != strings.ReplaceAll(name, ".", "-") {
			t.Errorf("%s travels as %s, consumer %s", name, k.Subject, k.Consumer)
		}
		if k.Policy.MaxFailures != 7 || k.Provider.Keyed || k.Policy.Lease != leaseStrict {
			t.Errorf("%s does not follow the settings: %+v %+v", name, k.Policy, k.Provider)
		}
		if fmt.Sprint(k.Provider.Stored) != "[402]" || k.Provider.Status409 != "by body" || k.Provider.Status422 != "by body" {
			t.Errorf("the profile of %s: %+v", name, k.Provider)
		}
		code, text, _ := runSettle(t, env, nil, "kinds", "--kind", name)
		if code != exitDone || !strings.Contains(text, c.StopRule) || !strings.Contains(text, "7 failures") {
			t.Errorf("as text: exit %d, %s", code, text)
		}
	}
	if k := kinds["contact.sync"]; k.Provider != nil {
		t.Errorf("a kind without a provider has the profile %+v", k.Provider)
	}
}

func TestKindsPrintsWhatAnswersMean(t *testing.T) {
	t.Parallel()
	p := consumer.Provider{Stored: []int{402, 500}, Status409: consumer.MeansExists, Status422: consumer.MeansConflict}
	if got, want := describeProvider(p, true).String(), "stores the errors 402 500, 409 exists, 422 conflict"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s in it", got, want)
	}
	p = consumer.Provider{Unkeyed: true}
	if got := describeProvider(p, true).String(); strings.Contains(got, "stores") || strings.Contains(got, "409") {
		t.Errorf("without keys: %s", got)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, out, _ := runSettle(t, nil, nil, "version", "--json")
	var v struct {
		Version, Go string
		Schema      int
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitDone || v.Version == "" || v.Go == "" || v.Schema == 0 {
		t.Errorf("exit %d, %s: %v", code, out, err)
	}
}
