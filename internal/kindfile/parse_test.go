package kindfile

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const sound = `settle: 1
kinds:
  invoice.issue:
    contract: {effect: one invoice}
    job:
      order: id
      shop: line
      amount: number
      note: optional text
      customer.name: text
      lines: list
    key: invoice/${job.shop}/${job.order}
    provider:
      url: http://127.0.0.1:1/base
      keyed: true
    send:
      path: /shops/${job.shop}/invoices
      query:
        ref: ${job.order}
      headers:
        X-Shop: ${job.shop}
      body:
        order: ${job.order}
        amount: ${job.amount}
        text: for ${job.customer.name}
        note: ${job.note?}
        lines: ${job.lines}
      answers:
        - {status: 201, means: done}
    result:
      id: ${answer.id}
    external_id: id
    look_up:
      by_key:
        path: /invoices
        query: {key: "${provider_key}"}
      answers:
        - {status: 200, means: found}
        - {status: 404, where: {error: not_found}, means: absent}
      same:
        order: ${job.order}
`

func parseSound(t testing.TB) *Kind {
	t.Helper()
	f, problems := Parse("kinds.yaml", []byte(sound))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return f.Kinds[0]
}

// Each change of the sound file is told, with the line that it is on.
func TestWhatIsWrongIsToldWithItsLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		old, new string
		line     int
		says     string
	}{
		"other format":         {"settle: 1", "settle: 2", 1, "format 2"},
		"no kinds":             {"kinds:", "kind:", 2, "did you mean kinds?"},
		"a name in upper case": {"invoice.issue:", "Invoice:", 3, "lower-case words"},
		"unknown key":          {"contract: {effect", "contract: {efect", 4, "did you mean effect?"},
		"unknown section":      {"    send:", "    sends:", 16, "did you mean send?"},
		"a subject":            {"    key: ", "    subject: jobs.x\n    key: ", 12, "travels on jobs."},
		"events":               {"    key: ", "    emits: [invoice.issued]\n    key: ", 12, "write the kind in Go, whose Commit does both"},
		"rows":                 {"    key: ", "    rows: {shop.orders: paid}\n    key: ", 12, "emits nothing and writes no rows"},
		"twice":                {"keyed: true", "keyed: true\n      keyed: false", 16, `"keyed" is there twice, first on line 15`},
		"two kinds of a name":  {"    look_up:", "  invoice.issue:\n    look_up:", 33, "twice"},
		"missing":              {"      keyed: true\n", "", 14, "keyed is missing"},
		"no value":             {"keyed: true", "keyed:", 15, "has no value"},
		"yes":                  {"keyed: true", "keyed: yes", 15, "true or false"},
		"no type":              {"order: id", "order: idd", 6, `"idd" is no type`},
		"not declared":         {"for ${job.customer.name}", "for ${job.customer.nam}", 25, "did you mean job.customer.name?"},
		"perhaps absent":       {"${job.note?}", "${job.note}", 26, "write ${job.note?}"},
		"no source":            {"${job.lines}", "${jobs.lines}", 27, "unknown; there are"},
		"no end":               {"${job.lines}", "${job.lines", 27, "${ without }"},
		"secret in a body":     {"${job.lines}", "${env:TOKEN}", 27, "secrets go into"},
		"list in a header":     {"X-Shop: ${job.shop}", "X-Shop: ${job.lines}", 21, "where a text is wanted"},
		"own header":           {"X-Shop:", "Content-Length:", 21, "not yours to set"},
		"no header":            {"X-Shop:", "\"X Shop\":", 21, "no name of a header"},
		"constant key":         {"key: invoice/${job.shop}/${job.order}", "key: invoice", 12, "all jobs would be one"},
		"key without sep":      {"${job.shop}/${job.order}", "${job.shop}${job.order}", 12, "a separator is wanted"},
		"key with letter sep":  {"${job.shop}/${job.order}", "${job.shop}x${job.order}", 12, "a separator is wanted"},
		"key, perhaps absent":  {"invoice/${job.shop}/", "invoice/${job.note?}/", 12, "no ? and no :-"},
		"key with a default":   {"invoice/${job.shop}/", "invoice/${job.shop:-x}/", 12, "no ? and no :-"},
		"key of a number":      {"invoice/${job.shop}/", "invoice/${job.amount}/", 12, "one spelling"},
		"key of a result":      {"invoice/${job.shop}/", "invoice/${answer.id}/", 12, "there is no answer here"},
		"no path":              {"path: /shops", "path: shops", 17, "begins with /"},
		"a path upwards":       {"path: /invoices", "path: /a/../b", 35, "empty, or only dots"},
		"GET as effect":        {"    send:\n", "    send:\n      method: GET\n", 17, "POST, PUT, PATCH or DELETE"},
		"no meaning":           {"201, means: done", "201, means: finished", 29, `"finished" is no meaning`},
		"never done":           {"201, means: done", "201, means: refused", 3, "no answer means done"},
		"no status":            {"status: 201", "status: 2001", 29, "HTTP statuses"},
		"unreachable":          {"        - {status: 201, means: done}", "        - {status: 2xx, means: done}\n        - {status: 201, means: unknown}", 30, "no answer comes to this rule"},
		"id of nothing":        {"external_id: id", "external_id: number", 3, "a path into result"},
		"asks about nothing":   {"query: {key: \"${provider_key}\"}", "query: {key: all}", 34, "names nothing of the job"},
		"prefix of none":       {"keyed: true", "keyed: true\n      key_prefix: order_", 3, "no key begins with"},
		"prefix of derived":    {"keyed: true", "keyed: true\n      key_prefix: s", 3, "no key begins with"},
		"volatile key":         {"    key: ", "    content: {volatile: [order]}\n    key: ", 3, "volatile"},
		"not a URL":            {"http://127.0.0.1:1/base", "ftp://h", 14, "http"},
		"backoffs crossed":     {"    send:\n", "    policy: {backoff_min: 5s, backoff_max: 1s}\n    send:\n", 3, "ackoff"},
		"short deadline":       {"    send:\n", "    policy: {deadline: 1ms}\n    send:\n", 16, "at least 1s"},
		"an alias":             {"order: ${job.order}\n        amount", "order: &a ${job.order}\n        amount", 23, "anchors"},
		"a tag":                {"status: 201", "status: !!int 201", 29, "tags"},
		"broken YAML":          {"      keyed: true", "     keyed: true", 3, "not YAML"},
		"two documents":        {"same:\n        order: ${job.order}\n", "same:\n        order: ${job.order}\n---\nsettle: 1\n", 0, "second YAML document"},
		"hexadecimal":          {"${job.lines}", "0x1F", 27, "as in JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(sound, c.old, c.new, 1)
			if text == sound {
				t.Fatal("nothing is changed")
			}
			_, problems := Parse("kinds.yaml", []byte(text))
			if !slices.ContainsFunc(errorsAmong(problems), func(p Problem) bool {
				return (p.Line == c.line || c.line == 0) && strings.Contains(p.Text, c.says)
			}) {
				t.Errorf("line %d %q is not told: %v", c.line, c.says, problems)
			}
		})
	}
}

func TestAllErrorsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer("keyed: true", "keyd: true", "order: id", "order: idd", "means: done", "means: don").Replace(sound)
	_, problems := Parse("kinds.yaml", []byte(text))
	var lines []int
	for _, p := range errorsAmong(problems) {
		lines = append(lines, p.Line)
	}
	for _, want := range []int{6, 15, 29} {
		if !slices.Contains(lines, want) {
			t.Errorf("line %d is missing in %v", want, problems)
		}
	}
	if !slices.IsSorted(lines) {
		t.Errorf("not by line: %v", lines)
	}
}

func TestDangersAreWarnings(t *testing.T) {
	t.Parallel()
	noLookUp, _, _ := strings.Cut(sound, "    look_up:")
	noSame, _, _ := strings.Cut(sound, "      same:")
	for name, c := range map[string]struct{ text, says string }{
		"unkeyed, no look-up":    {strings.Replace(noLookUp, "keyed: true", "keyed: false", 1), "each outcome that is unknown needs a person"},
		"keyed, no look-up":      {noLookUp, "needs a person"},
		"resend unkeyed":         {strings.Replace(sound, "keyed: true", "keyed: false\n      resend_unkeyed: true", 1), "a second effect is possible"},
		"absent by status":       {strings.Replace(sound, ", where: {error: not_found}", "", 1), "the 404 of a proxy"},
		"never absent":           {strings.Replace(sound, "where: {error: not_found}, means: absent", "means: cannot_tell", 1), "no answer means absent"},
		"nothing compared":       {noSame, "nothing is compared"},
		"timeout over deadline":  {strings.Replace(sound, "keyed: true", "keyed: true\n      timeout: 1m", 1), "is cut to it"},
		"short key lifetime":     {strings.Replace(sound, "keyed: true", "keyed: true\n      key_lifetime: 1m", 1), "less than the longest pause"},
		"strict, long deadline":  {strings.Replace(sound, "    send:\n", "    policy: {lease_policy: strict, deadline: 2m}\n    send:\n", 1), "longer than a lease"},
		"refused by 5xx":         {strings.Replace(sound, "        - {status: 201, means: done}", "        - {status: 201, means: done}\n        - {status: 5xx, means: refused}", 1), "usually are not"},
		"done by 404":            {strings.Replace(sound, "status: 201", "status: [201, 404]", 1), "are you sure"},
		"not sent, who says so":  {strings.Replace(sound, "        - {status: 201, means: done}", "        - {status: 201, means: done}\n        - {status: 503, means: not_sent}", 1), "counts as unknown"},
		"a token in the file":    {strings.Replace(sound, "keyed: true", "keyed: true\n      headers: {Authorization: Bearer s3cret}", 1), "looks like a secret"},
		"a password in the file": {strings.Replace(sound, "http://127", "http://u:s3cret@127", 1), "looks like a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := Parse("kinds.yaml", []byte(c.text))
			if errs := errorsAmong(problems); len(errs) > 0 {
				t.Fatal(errs)
			}
			if !slices.ContainsFunc(problems, func(p Problem) bool { return p.Warning && p.Line > 0 && strings.Contains(p.Text, c.says) }) {
				t.Errorf("%q is not told: %v", c.says, problems)
			}
			if strings.Contains(fmt.Sprint(problems), "s3cret") {
				t.Errorf("a secret is shown: %v", problems)
			}
		})
	}
}

const reference = "../../docs/kinds-file.md"

// The examples of the documents are read as strictly as files are.
func TestTheExamplesOfTheDocumentsCanBeUsed(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{reference: 3, "../../README.md": 1} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
		if len(examples) < want {
			t.Fatalf("%d examples in %s", len(examples), path)
		}
		for _, example := range examples {
			if _, problems := Parse("example", example[1]); len(errorsAmong(problems)) > 0 {
				t.Errorf("%v in\n%s", problems, example[1])
			}
		}
	}
}

// Every key that a file may have is in the reference.
func TestTheReferenceNamesEveryKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	stray := "qqqqqqqqqqqqqqqq: 1"
	nested := `settle: 1
STRAY
kinds:
  a:
    STRAY
    contract: {STRAY}
    job: {id: id}
    provider: {STRAY}
    policy: {STRAY}
    content: {STRAY}
    order: {STRAY}
    send: {STRAY, answers: [{STRAY}]}
    look_up: {STRAY, by_key: {STRAY}}
`
	_, problems := Parse("", []byte(strings.ReplaceAll(nested, "STRAY", stray)))
	keys := map[string]bool{}
	for _, p := range problems {
		if _, list, ok := strings.Cut(p.Text, "known are "); ok {
			for _, key := range strings.Split(list, ", ") {
				keys[key] = true
			}
		}
	}
	if len(keys) < 50 {
		t.Fatalf("only %d keys are found: %v", len(keys), problems)
	}
	for key := range keys {
		if !strings.Contains(string(text), key+":") && !strings.Contains(string(text), "`"+key+"`") {
			t.Errorf("%s is not in the reference", key)
		}
	}
}
