package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// servers is the environment of a worker with servers of its own and the stand-in provider.
func servers(t *testing.T) map[string]string {
	t.Helper()
	broker, _ := devtest.JetStream(t)
	env := map[string]string{
		"DATABASE_URL": devtest.Database(t), "NATS_URL": broker,
		"SETTLE_HTTP_ADDR": "127.0.0.1:0", "SETTLE_CREATE_ORDERS": "true", "SETTLE_PROVIDER_ADDR": "127.0.0.1:0",
	}
	provider := start(t, env, "provider")
	env["SETTLE_PROVIDER_URL"] = urlIn(t, provider.await("the stand-in provider listens"))
	t.Cleanup(func() {
		provider.signal(syscall.SIGTERM)
		if code := provider.exit(); code != exitDone {
			t.Errorf("provider: exit %d", code)
		}
	})
	return env
}

// urlIn takes "url" out of a JSON log line.
func urlIn(t *testing.T, logged string) string {
	t.Helper()
	_, rest, found := strings.Cut(logged, `"url":"`)
	url, _, _ := strings.Cut(rest, `"`)
	if !found {
		t.Fatalf("no url in %s", logged)
	}
	return url
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestAJobFromPublishToShow(t *testing.T) {
	t.Parallel()
	env := servers(t)
	worker := start(t, env, "work")
	base := urlIn(t, worker.await("HTTP listens"))
	worker.await(`"msg":"serving"`)
	if status, body := get(t, base+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d %s", status, body)
	}
	if status, body := get(t, base+"/readyz"); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, body)
	}

	jobs := strings.NewReader(charge(18452) + "\n")
	if code, out, errOut := runSettle(t, env, jobs, "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s%s", code, out, errOut)
	}
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_18452", "finished")

	code, out, errOut := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_18452")
	if code != exitDone || !strings.HasPrefix(out, "payment.charge order_18452 is done: attempt 1") {
		t.Errorf("show: exit %d, %s%s", code, out, errOut)
	}
	if strings.Contains(out, "customer_id") {
		t.Errorf("show prints the job unasked: %s", out)
	}
	if _, out, _ := runSettle(t, env, nil, "tasks", "show", "payment.charge/order_18452", "--content"); !strings.Contains(out, "customer_id") {
		t.Errorf("show --content does not print the job: %s", out)
	}

	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("work: exit %d after SIGTERM:\n%s", code, strings.Join(worker.all, "\n"))
	}
	if log := strings.Join(worker.all, "\n"); strings.Contains(log, "c_1") {
		t.Errorf("the log shows a payload:\n%s", log)
	}
}

func TestTheSecondSignalEndsAtOnceAndAnotherWorkerFinishesTheJob(t *testing.T) {
	t.Parallel()
	env := servers(t)
	env["SETTLE_LEASE"], env["SETTLE_ACK_WAIT"], env["SETTLE_BACKOFF_MIN"] = "1s", "1s", "10ms"
	put(t, env["SETTLE_PROVIDER_URL"]+"/faults", `[{"count": 1, "delay-after": "1m"}]`)
	worker := start(t, env, "work")
	if code, _, errOut := runSettle(t, env, strings.NewReader(charge(7)), "publish", "--kind", "payment.charge"); code != exitDone {
		t.Fatalf("publish: exit %d, %s", code, errOut)
	}
	awaitRow(t, env["DATABASE_URL"], `provider.charges where order_id = '7'`)
	worker.signal(syscall.SIGTERM)
	worker.await(`"msg":"draining"`)
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitFailed {
		t.Errorf("exit %d after the second signal, want %d", code, exitFailed)
	}

	next := start(t, env, "work")
	awaitTask(t, env["DATABASE_URL"], "payment.charge", "order_7", "finished")
	next.signal(syscall.SIGTERM)
	if code := next.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	if _, body := get(t, env["SETTLE_PROVIDER_URL"]+"/stats?idempotency_key=order_7"); !strings.Contains(body, `"effects":1`) {
		t.Errorf("stats of the provider: %s; want one effect", body)
	}
}

func put(t *testing.T, url, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("PUT %s: %s %s", url, answer.Status, text)
	}
}

// awaitTask waits for a task to get its status.
func awaitTask(t *testing.T, url, kind, key, status string) {
	t.Helper()
	awaitRow(t, url, fmt.Sprintf(`settle.tasks where kind = '%s' and key = '%s' and status = '%s'`, kind, key, status))
}

// awaitRow waits for a row to appear; the waiting is done in the database.
func awaitRow(t *testing.T, url, row string) {
	t.Helper()
	execute(t, url, fmt.Sprintf(`do $$ begin
		for i in 1..1000 loop
			perform from %s;
			if found then return; end if;
			perform pg_sleep(0.03);
		end loop;
		raise exception 'the row never appeared';
	end $$`, row))
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestAWorkerWaitsForServersThatAreDown(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"DATABASE_URL": "postgres://app:secret@127.0.0.1:1/x", "NATS_URL": "nats://app:secret@127.0.0.1:1",
		"SETTLE_HTTP_ADDR": "127.0.0.1:0", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
	}
	worker := start(t, env, "work")
	base := urlIn(t, worker.await("HTTP listens"))
	worker.await("waiting for Postgres")
	if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d while waiting", status)
	}
	if status, _ := get(t, base+"/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz: %d while waiting", status)
	}
	worker.signal(os.Interrupt)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d when told to stop while waiting", code)
	}

	env["DATABASE_URL"] = devtest.Database(t)
	worker = start(t, env, "work")
	worker.await("waiting for NATS")
	worker.signal(os.Interrupt)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d when told to stop while waiting", code)
	}
	if log := strings.Join(worker.all, "\n"); strings.Contains(log, "secret") {
		t.Errorf("the log shows a password:\n%s", log)
	}
}

func TestNATSThatComesLateIsUsed(t *testing.T) {
	t.Parallel()
	port := natsAt(t, 0)() // there was one, and it is gone
	env := map[string]string{
		"DATABASE_URL": devtest.Database(t), "NATS_URL": fmt.Sprintf("nats://127.0.0.1:%d", port),
		"SETTLE_HTTP_ADDR": "off", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
	}
	worker := start(t, env, "work")
	worker.await("waiting for NATS")
	stop := natsAt(t, port)
	worker.await("NATS is there")
	worker.await(`"msg":"serving"`)
	stop()
	worker.await("NATS connection lost")
	stop = natsAt(t, port)
	worker.await("NATS connection is back")
	worker.signal(syscall.SIGTERM)
	if code := worker.exit(); code != exitDone {
		t.Errorf("exit %d", code)
	}
	stop()
}

// natsAt starts a server at a port, or at a free one, and returns what stops it and tells its port.
func natsAt(t *testing.T, port int) (stop func() int) {
	t.Helper()
	server, err := devenv.StartNATS(devenv.NATSOptions{Port: port})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	port, err = strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		return port
	}
}

func TestAWrongLoginEndsTheWorker(t *testing.T) {
	t.Parallel()
	wrong, err := devenv.DatabaseURL(devtest.Database(t), "no_such_database")
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{
		"DATABASE_URL": wrong, "NATS_URL": "nats://127.0.0.1:1", "SETTLE_HTTP_ADDR": "off", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
	}
	code, _, errOut := runSettle(t, env, nil, "work")
	if code != exitUsage || !strings.Contains(errOut, "no_such_database") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

func TestAWorkerRefusesADatabaseWithoutTheSchemaAndSaysWhatToRun(t *testing.T) {
	t.Parallel()
	env := servers(t)
	execute(t, env["DATABASE_URL"], `drop schema settle cascade`)
	code, _, errOut := runSettle(t, env, nil, "work")
	if code != exitUsage || !strings.Contains(errOut, "settle migrate") {
		t.Errorf("work: exit %d, %s", code, errOut)
	}
	code, _, errOut = runSettle(t, env, nil, "tasks", "list")
	if code != exitUsage || !strings.Contains(errOut, "settle migrate") {
		t.Errorf("tasks: exit %d, %s", code, errOut)
	}
	for range 2 { // the second run changes nothing
		code, out, errOut := runSettle(t, env, nil, "migrate")
		if code != exitDone || !strings.Contains(out, "version 1") {
			t.Errorf("migrate: exit %d, %s%s", code, out, errOut)
		}
	}
	if code, _, errOut := runSettle(t, env, nil, "tasks", "list"); code != exitDone {
		t.Errorf("tasks after migrate: exit %d, %s", code, errOut)
	}
}

func TestATakenHTTPPortIsReplaced(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	env := map[string]string{
		"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1",
		"SETTLE_HTTP_ADDR": taken.Addr().String(), "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
	}
	worker := start(t, env, "work")
	base := urlIn(t, worker.await("HTTP listens"))
	if strings.HasSuffix(base, taken.Addr().String()) {
		t.Errorf("listens at %s, which is taken", base)
	}
	if status, _ := get(t, base+"/healthz"); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	worker.signal(syscall.SIGTERM)
	worker.exit()
}

func TestAWorkerRefusesAShortProofAge(t *testing.T) {
	t.Parallel()
	broker, _ := devtest.JetStream(t)
	env := map[string]string{
		"DATABASE_URL": devtest.Database(t), "NATS_URL": broker, "SETTLE_HTTP_ADDR": "off", "SETTLE_PROVIDER_URL": "http://127.0.0.1:1",
		"SETTLE_PROOF_RETENTION": "24h", "SETTLE_REPLAY_HORIZON": "30h",
	}
	code, _, errOut := runSettle(t, env, nil, "work")
	if code != exitUsage {
		t.Errorf("exit %d", code)
	}
	for _, text := range []string{"settle: --proof-retention (SETTLE_PROOF_RETENTION)", "24h0m0s", "31h0m0s", "30h0m0s for replays"} {
		if !strings.Contains(errOut, text) {
			t.Errorf("%q is not in %s", text, errOut)
		}
	}
}
