package rights

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/settlemq/settle/internal/rig"
)

// An installation from nothing to its daily work, each process with its own rights; then nobody can do more.
func TestEachProcessHasTheRightsThatItNeedsAndNoOthers(t *testing.T) {
	s := newStage(t)
	s.grant() // roles, and the right to make the schema
	migrator := slices.Concat([]string{"DATABASE_URL=" + s.as("migrator")}, s.user("admin"))
	s.run(0, migrator, "migrate")
	s.grant() // on the tables
	s.serveProvider()
	worker := s.start(slices.Concat(s.settings("worker"), s.user("worker"), []string{"SETTLE_HTTP_ADDR=127.0.0.1:0"}), "work")
	s.says(worker, "not ready; waiting") // it may not make the stream
	s.run(0, migrator, "migrate", "--streams")
	s.says(worker, `"msg":"serving"`)

	if !t.Run("jobs", s.with(s.jobs)) {
		return // the rest is about what became of them
	}
	t.Run("doctor", s.with(s.doctor))
	t.Run("stop", s.with(func() { s.stop(worker) }))
	t.Run("recovery", s.with(s.recovery))
	t.Run("archive", s.with(s.archive))
	t.Run("viewer", s.with(s.viewer))
	t.Run("operator", s.with(s.operator))
	t.Run("enqueue", s.with(s.enqueue))
	t.Run("no more in Postgres", s.with(s.noMoreInPostgres))
	t.Run("no more in NATS", s.with(s.noMoreInNATS))
	t.Run("strangers", s.with(s.strangers))
}

// with makes a part a test of its own.
func (s *stage) with(part func()) func(*testing.T) {
	return func(t *testing.T) {
		whole := s.t
		s.t = t
		defer func() { s.t = whole }()
		part()
	}
}

// settings are those of a process that shapes kinds.
func (s *stage) settings(role string) []string {
	return []string{
		"DATABASE_URL=" + s.as(role), "SETTLE_PROVIDER_URL=" + s.provider, "SETTLE_CREATE_ORDERS=true",
		"SETTLE_PROVIDER_MAX_IN_FLIGHT=8", // so that workers share a cap
		"SETTLE_RECOVER_EVERY=500ms",
		"SETTLE_LOG_LEVEL=debug", // what is tried again later is said there
	}
}

// jobs go from a publisher to their answers: each kind, and a message that is refused.
func (s *stage) jobs() {
	for kind, body := range map[string]string{
		"payment.charge":  `{"order_id":"7001","customer_id":"c_1","amount":1200,"currency":"EUR"}`,
		"report.create":   `{"task_id":42,"report_type":"monthly"}`,
		"contact.sync":    `{"source_id":"1","event_id":"e1","version":1,"name":"Ann","email":"ann@example.com"}`,
		"contacts.import": `{"batch_id":"b1","records":[{"source_id":"2","event_id":"e2","version":1,"name":"Bo","email":"bo@example.com"}]}`,
	} {
		s.publish(kind, body)
	}
	rig.Eventually(s.t, soon, "the follow-up of the charge is done", func() bool {
		return ask[int](s, "select count(*)::int from settle.tasks where status = 'finished'") == 5
	})
	publisher, _ := s.connect("publisher")
	if _, err := publisher.Publish(s.t.Context(), "jobs.payment.charge", []byte("{")); err != nil {
		s.t.Error(err)
	}
	admin, _ := s.connect("admin")
	rig.Eventually(s.t, soon, "all jobs are acked and the event is out", func() bool {
		jobs, err := admin.Stream(s.t.Context(), "JOBS")
		if err != nil {
			return false
		}
		events, err := admin.Stream(s.t.Context(), "EVENTS")
		return err == nil && jobs.CachedInfo().State.Msgs == 0 && events.CachedInfo().State.Msgs == 1
	})
	if n := ask[int](s, "select count(*)::int from settle.refusals where reason = 'malformed'"); n != 1 {
		s.t.Errorf("%d refusals are kept, want 1", n)
	}
	if n := ask[int](s, "select count(*)::int from provider.charges"); n != 1 {
		s.t.Errorf("%d charges, want 1", n)
	}
}

// publish waits for the answer, which comes over NATS alone.
func (s *stage) publish(kind, body string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "jobs")
	if err := os.WriteFile(file, []byte(body+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.run(0, s.user("publisher"), "publish", "--wait=2m", "--kind", kind, file)
}

// doctor finds no right lacking.
func (s *stage) doctor() {
	out := s.run(0, slices.Concat(s.settings("worker"), s.user("worker")), "doctor")
	if strings.Contains(out, "privilege-missing") { // those of operators it has not, and need not have
		s.t.Errorf("a right is said to be lacking:\n%s", out)
	}
}

// stop drains the worker, which never asked for more than it may.
func (s *stage) stop(worker *rig.Worker) {
	worker.Signal(syscall.SIGTERM)
	if exit := worker.Wait(soon); exit.Code != 0 {
		s.t.Errorf("the worker ended with %s", exit)
	}
	_, serving, _ := strings.Cut(worker.Output(), `"msg":"serving"`)
	for _, text := range []string{"permission denied", "ermissions violation", "not heard"} {
		if strings.Contains(strings.ToLower(serving), strings.ToLower(text)) {
			s.t.Errorf("the worker wanted more than it may: %s", text)
		}
	}
}

// recovery settles a charge that a worker has left, without any message.
func (s *stage) recovery() {
	s.execute(`
insert into settle.tasks (kind, key, status, token, lease_until, sending, payload, payload_hash, hash_algorithm, provider,
  provider_key, give_up_at, first_sent_at, created_at)
select kind, 'order_7002', 'started', gen_random_uuid(), clock_timestamp() - interval '1 minute', true,
  convert_to(replace(convert_from(payload, 'UTF8'), '7001', '7002'), 'UTF8'), payload_hash, hash_algorithm, provider,
  'order_7002', clock_timestamp() + interval '1 day', clock_timestamp() - interval '2 minutes', clock_timestamp() - interval '2 minutes'
from settle.tasks where key = 'order_7001'`)
	s.run(0, s.settings("recovery"), "recover", "--older-than", "1m", "--actor", "nightly", "--reason", "a test")
	if n := ask[int](s, "select count(*)::int from provider.charges where idempotency_key = 'order_7002'"); n != 1 {
		s.t.Errorf("%d charges of the order that was left, want 1", n)
	}
}

// archive moves payloads away, and cannot remove the keys.
func (s *stage) archive() {
	s.execute("update settle.tasks set expires_at = clock_timestamp() where key = 'report-task-42'")
	env := []string{"DATABASE_URL=" + s.as("archiver")}
	if out := s.run(0, env, "archive", "--json"); !strings.Contains(out, `"archived":1,`) {
		s.t.Errorf("not archived: %s", out)
	}
}

// viewer reads all pages and lists, and acts in no way.
func (s *stage) viewer() {
	env := slices.Concat([]string{"DATABASE_URL=" + s.as("viewer")}, s.user("screen"))
	screen := s.screen(env, "viewer")
	for _, path := range []string{"/", "/tasks/1", "/kinds", "/lists/review", "/lists/strays", "/find?q=order_7001", "/api/tasks/1"} {
		if status, body := screen.ask(http.MethodGet, path, ""); status != http.StatusOK || strings.Contains(body, "permission denied") {
			s.t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := screen.ask(http.MethodPost, "/api/tasks/1/note", `{"reason":"seen"}`); status < 400 {
		s.t.Errorf("a viewer's note is answered with %d", status)
	}
	s.run(0, env, "tasks", "list")
	s.run(0, env, "alerts")
	s.run(0, env, "refusals", "list")
	if out := s.run(1, slices.Concat(env, s.settings("viewer")), "tasks", "note", "1", "--reason", "seen"); !strings.Contains(out, "42501") {
		s.t.Errorf("a viewer's note is not refused by the database: %s", out)
	}
}

// operator acts from the screen and by commands.
func (s *stage) operator() {
	env := slices.Concat(s.settings("operator"), s.user("screen"))
	screen := s.screen(env, "operator")
	for _, act := range []struct{ path, want string }{
		{"/api/tasks/1/note", `"outcome":"done"`},
		{"/api/kinds/payment.charge/pause", "is paused"},
		{"/api/kinds/payment.charge/resume", "payment.charge"},
		{"/api/recover", `"outcome":"`},
		{"/api/refusals/1/republish", "Published again"},
	} {
		status, body := screen.ask(http.MethodPost, act.path, `{"reason":"the customer called"}`)
		if status != http.StatusOK || !strings.Contains(body, act.want) || strings.Contains(body, "42501") {
			s.t.Errorf("%s: %d %s", act.path, status, body)
		}
	}
	why := []string{"--reason", "a test", "--actor", "ann"}
	s.run(0, env, slices.Concat([]string{"archive", "restore"}, why, []string{"report.create/report-task-42"})...)
	s.execute(`update settle.tasks set status = 'needs_review', finished_at = null, expires_at = null, unsure = true, external_id = null
		where key = 'order_7001'`)
	s.run(0, env, slices.Concat([]string{"tasks", "ask"}, why, []string{"payment.charge/order_7001"})...)
	if status := ask[string](s, "select status from settle.tasks where key = 'order_7001'"); status != "finished" {
		s.t.Errorf("the charge that was asked about is %s", status)
	}
}

// screen is a running settle admin and a token for it.
type screen struct {
	s          *stage
	url, token string
}

func (s *stage) screen(env []string, role string) screen {
	s.t.Helper()
	env = append(env, "SETTLE_ADMIN_ADDR=127.0.0.1:0", "SETTLE_HTTP_ADDR=127.0.0.1:0", "SETTLE_ADMIN_USERS="+filepath.Join(s.t.TempDir(), "users"))
	token := regexp.MustCompile(`(?m)^\S{20,}$`).FindString(s.run(0, env, "admin", "user", "add", "--token", "--role", role, "backoffice"))
	process := s.start(env, "admin")
	s.says(process, "the support screen listens")
	return screen{s, regexp.MustCompile(`the support screen listens","url":"(http://[0-9.:]+)`).FindStringSubmatch(process.Output())[1], token}
}

func (c screen) ask(method, path, body string) (status int, answer string) {
	c.s.t.Helper()
	request, err := http.NewRequestWithContext(c.s.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		c.s.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		c.s.t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return got.StatusCode, string(text)
}

// enqueue is what a publisher does in a transaction of its own.
func (s *stage) enqueue() {
	const job = `select settle.enqueue('report.create', '{"task_id":43,"report_type":"monthly"}')`
	if _, err := s.session("publisher").Exec(s.t.Context(), job); err != nil {
		s.t.Error(err)
	}
}
