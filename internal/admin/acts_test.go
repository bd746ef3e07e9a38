package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
)

// Columns of tasks that operators meet.
const (
	isDone     = done + `, expires_at = clock_timestamp()`
	isFailed   = failed + `, unsure = true, expires_at = clock_timestamp()`
	isUnknown  = `status = 'unknown', lease_until = null, sending = false, unsure = true, next_attempt_at = clock_timestamp()`
	isDead     = `lease_until = clock_timestamp() - interval '1 second'`
	isReleased = `lease_until = null, sending = false, first_sent_at = null, last_sent_by = null, next_attempt_at = clock_timestamp() + interval '1 hour'`
	isParked   = parked + `'absent'`
	isUnsent   = `status = 'needs_review', lease_until = null, sending = false, first_sent_at = null, last_sent_by = null, review_cause = 'conflict'`
)

var allActs = []string{"ask", "retry", "send-again", "supersede", "cancel", "resolve", "note"}

// D-44: each act on each status either does what the button says, or says why not and sends nothing.
func TestActsOnEachStatus(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	n := 0
	for name, state := range map[string]struct {
		set     string
		buttons string
		says    string // why nothing can be sent
	}{
		"done": {isDone, "note", "it is done, and what is done stays"}, "live": {"", "note", "an attempt is at work on it"},
		"failed":   {isFailed, "retry note", ""},
		"unknown":  {isUnknown, "ask send-again resolve note", "the provider is asked about it by itself"},
		"dead":     {isDead, "ask resolve note", "a worker takes it up by itself"},
		"released": {isReleased, "cancel note", "its next attempt comes by itself"},
		"parked":   {isParked, "ask retry send-again resolve note", ""}, "unsent": {isUnsent, "ask retry cancel resolve note", ""},
	} {
		for _, act := range allActs {
			n++
			task := c.job(n, state.set)
			page := c.open(fmt.Sprintf("/tasks/%d", task.TaskID))
			for _, b := range allActs {
				link := fmt.Sprintf(`href="/tasks/%d/%s"`, task.TaskID, b)
				if offered := slices.Contains(strings.Fields(state.buttons), b); strings.Contains(page, link) != offered {
					t.Errorf("%s: the button %s is there: %v", name, b, !offered)
				}
			}
			if text := textOf(t, page); state.says != "" && !strings.Contains(strings.ToLower(text), state.says) {
				t.Errorf("%s does not say %q:\n%s", name, state.says, text)
			}
			c.actOn(name, task, act, slices.Contains(strings.Fields(state.buttons), act))
		}
	}
	if got := c.effects(); got != "0 0" {
		t.Errorf("requests and effects: %s", got)
	}
}

// actOn presses an act, also where there is no button, and compares the row with what is said.
func (c *counter) actOn(name string, task idemstore.Task, act string, possible bool) {
	c.t.Helper()
	path := fmt.Sprintf("/tasks/%d/%s", task.TaskID, act)
	form := fields(c.t, c.open(path))
	if forced := act == "resolve" && task.LeaseLive; !forced && (form != nil) != possible {
		c.t.Errorf("%s, %s: there is a form: %v", name, act, form != nil)
	}
	if form == nil { // made by hand
		form = c.form(fmt.Sprintf("/tasks/%d/note", task.TaskID))
	}
	for field, value := range map[string]string{"reason": "the customer called", "as": "failed", "refusal": "1"} {
		form.Set(field, value)
	}
	says := c.send(path, form)
	now := c.now(task.TaskID)
	lines := c.text(`select string_agg(concat_ws(' ', actor, old_status, new_status, reason), '; ') from settle.task_events where task_id = $1`, task.TaskID)
	if !possible {
		if !strings.HasPrefix(says, "Not done.") || now.Shown() != task.Shown() || lines != "" {
			c.t.Errorf("%s, %s, which is not possible: %q; %s, %d attempts; %q", name, act, says, now.Status, now.Attempt, lines)
		}
		return
	}
	if strings.HasPrefix(says, "Not") || !strings.Contains(says, "by ann") || !strings.Contains(says, "the customer called") {
		c.t.Errorf("%s, %s: %q", name, act, says)
	}
	if !strings.HasPrefix(lines, "ann "+string(task.Status)+" "+string(now.Status)) || !strings.HasSuffix(lines, "the customer called") {
		c.t.Errorf("%s, %s: the history has %q", name, act, lines)
	}
	if changes := act != "ask" && act != "note"; changes != (now.Attempt == task.Attempt+1) {
		c.t.Errorf("%s, %s: %d attempts, then %d", name, act, task.Attempt, now.Attempt)
	}
}

// An operator finds out that it happened, and the customer can be told.
func TestAskingClosesATask(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	task := c.job(1, isUnknown+`, last_error = 'EOF', error_class = 'unknown'`)
	if page := c.open(fmt.Sprintf("/tasks/%d", task.TaskID)); !strings.Contains(page, ">Why it waits<") {
		t.Error(textOf(t, page))
	}
	c.happened(1)
	if says := c.press(task, "ask"); !strings.HasPrefix(says, "Done. The provider was asked: it happened as ch_1.") {
		t.Error(says)
	}
	page := c.open(fmt.Sprintf("/tasks/%d", task.TaskID))
	if !strings.Contains(page, "Charged once, 12.00 EUR, charge ch_1") || strings.Contains(page, `class="came`) ||
		!strings.Contains(page, ">An earlier error<") || strings.Contains(page, ">Last error<") {
		t.Error(textOf(t, page))
	}
	if got := c.text(`select status || ' ' || charge_id from shop.orders`); got != "paid ch_1" {
		t.Errorf("the order is %s", got)
	}
}

func TestResolvingByDecision(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	for n, r := range []struct {
		fill []string
		says string
		row  string
	}{
		{[]string{"as", "failed"}, "Done. It has failed, by decision; the provider was asked: it does not know it.", "failed"},
		{[]string{"as", "finished"}, "Not done. Nothing was changed: local rows are made of its result", "needs_review"},
		{[]string{"as", "finished", "result", `{"charge_id":"ch_7","status":"succeeded"}`}, "Done. It is finished as ch_7, by decision", "finished ch_7"},
		{[]string{"as", "finished", "result", `{"charge_id":`}, "Not done.", "needs_review"},
		{[]string{"as", "finished", "external_id", " ch_7"}, "Not done. Resolve: the external id has spaces around it", "needs_review"},
	} {
		task := c.job(n, isParked)
		if form := fields(t, c.open(fmt.Sprintf("/tasks/%d/resolve", task.TaskID))); form.Has("as") {
			t.Fatalf("the form has chosen %q before anybody did", form.Get("as"))
		}
		if says := c.press(task, "resolve", r.fill...); !strings.HasPrefix(says, r.says) {
			t.Errorf("%q: %s, want %s", r.fill, says, r.says)
		}
		if now := c.now(task.TaskID); strings.TrimSpace(string(now.Status)+" "+now.ExternalID) != r.row {
			t.Errorf("%q: %s %s", r.fill, now.Status, now.ExternalID)
		}
	}
}

func TestTakingTheCorrectedContent(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	task := c.job(1, isUnsent)
	if page := textOf(t, c.open(fmt.Sprintf("/tasks/%d/supersede", task.TaskID))); !strings.Contains(page, "No message with its key") {
		t.Error(page)
	}
	body := `{"order_id":"1","customer_id":"c_17","amount":1300,"currency":"EUR"}`
	if err := c.store.Refuse(t.Context(), idemstore.Refusal{Kind: charge, Key: "order_1", Reason: idemstore.Conflict, Body: []byte(body), TaskID: task.TaskID}); err != nil {
		t.Fatal(err)
	}
	if says := c.press(task, "supersede"); !strings.HasPrefix(says, "Done. It takes the content of a refused message") {
		t.Error(says)
	}
	if now := c.now(task.TaskID); string(now.Payload) != body || now.Status != idemstore.Started {
		t.Errorf("%s %s", now.Status, now.Payload)
	}
}

// D-44: pressed many times at once, on two screens, it is one act with one answer.
func TestD44OneFormIsOneAct(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	other := c.beside(t)
	task := c.job(1, isParked)
	path := fmt.Sprintf("/tasks/%d/retry", task.TaskID)
	body := c.form(path, "reason", "the customer called").Encode()
	const presses = 16
	ready, said := make(chan struct{}), make(chan string, presses)
	for i := range presses {
		at := c
		if i%2 == 1 {
			at = other
		}
		go func() {
			<-ready
			r, err := at.ask(context.WithoutCancel(t.Context()), "ann", "operator", http.MethodPost, path, formType, body)
			said <- fmt.Sprintln(r.status, r.location, err)
		}()
	}
	close(ready)
	first := <-said
	for range presses - 1 {
		if again := <-said; again != first {
			t.Errorf("%s and %s", first, again)
		}
	}
	if now := c.now(task.TaskID); now.Attempt != task.Attempt+1 || now.Status != idemstore.Unknown {
		t.Errorf("%s after attempt %d", now.Status, now.Attempt)
	}
	if lines := c.text(`select count(*) || ' ' || (select count(*) from settle.presses) from settle.task_events`); lines != "1 1" {
		t.Errorf("lines in history and presses: %s", lines)
	}
	location := strings.Fields(first)[1]
	says := c.notice(location)
	if !strings.HasPrefix(says, "Done. One more attempt is due now") || other.notice(location) != says {
		t.Errorf("%q and %q", says, other.notice(location))
	}
	if r := c.as("bob", "operator", http.MethodPost, path, formType, body); r.status != http.StatusConflict || !strings.Contains(r.body, "sent before, with other content") {
		t.Errorf("somebody else's form: %d %s", r.status, r.body)
	}
	if r := c.as("ann", "operator", http.MethodPost, path, formType, strings.Replace(body, "customer", "friend", 1)); r.status != http.StatusConflict {
		t.Errorf("the form with another reason: %d", r.status)
	}
}

// Two people, or two tabs: the second is told what has changed.
func TestAnOldFormDoesNothing(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	task := c.job(1, isParked)
	retry, resolve := fmt.Sprintf("/tasks/%d/retry", task.TaskID), fmt.Sprintf("/tasks/%d/resolve", task.TaskID)
	old := c.form(resolve, "reason", "it failed", "as", "failed")
	if says := c.send(retry, c.form(retry, "reason", "once more")); !strings.HasPrefix(says, "Done.") {
		t.Fatal(says)
	}
	before, requests := c.now(task.TaskID), c.text(`select count(*) from provider.requests`)
	says := c.send(resolve, old)
	if !strings.HasPrefix(says, "Not done. It has changed since it was looked at, when it was needs review after attempt 1: "+
		"it is pending – being checked with the provider now, after attempt 2.") {
		t.Error(says)
	}
	if now := c.now(task.TaskID); now.Shown() != before.Shown() || c.text(`select count(*) from provider.requests`) != requests {
		t.Errorf("%+v, %+v", before, now)
	}
	note := c.form(fmt.Sprintf("/tasks/%d/note", task.TaskID), "reason", "seen", "attempts", "1", "status", "needs_review")
	for range 2 { // nothing but its id makes a note one
		if says := c.send(fmt.Sprintf("/tasks/%d/note", task.TaskID), note); !strings.HasPrefix(says, "Done.") {
			t.Errorf("a note on what has changed: %s", says)
		}
	}
	if lines := c.text(`select count(*) from settle.task_events where reason = 'note: seen'`); lines != "1" {
		t.Errorf("%s notes", lines)
	}
}

// D-44: a set of 1,000 tasks of all kinds of states, pressed twice: each effect is there once.
func TestD44RecoverASet(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	const rows = 1000
	c.exec(`insert into settle.tasks (kind, key, status, attempts, token, sending, unsure, lease_until, next_attempt_at, give_up_at, finished_at,
			first_sent_at, last_sent_by, review_cause, payload, payload_hash, hash_algorithm, provider, provider_key, created_at)
		select 'payment.charge', 'order_' || n, s, 2, gen_random_uuid(), s = 'started', s <> 'started', case when s = 'started' then c - interval '1 h' end,
			c - interval '1 h', c + interval '1 day', case when s in ('finished', 'failed') then c end, c - interval '2 h', c - interval '2 h',
			case when s = 'needs_review' then 'absent' end, format('{"order_id":"%s","customer_id":"c","amount":1200,"currency":"EUR"}', n)::bytea, '\x00', 'test',
			'provider', 'order_' || n, c - interval '2 h'
		from generate_series(1, $1) n, clock_timestamp() c, lateral (select (array['finished', 'started', 'unknown', 'failed', 'needs_review'])[n % 5 + 1]) x(s)`, rows)
	c.exec(`insert into shop.orders (order_id, customer_id, amount, currency) select n, 'c', 1200, 'EUR' from generate_series(1, $1) n`, rows)
	for n := 1; n <= rows; n += 2 { // every other one happened
		c.happened(n)
	}
	const address = "/recover?kind=payment.charge&older_than=1h&within=24h&limit=1000"
	if page := textOf(t, c.open(address)); !strings.Contains(page, "400 would be asked about.") || !strings.Contains(page, "300 more are not shown") {
		t.Fatal(page)
	}
	if page := textOf(t, c.open(strings.Replace(address, "1000", "399", 1))); !strings.Contains(page, "More than 399 tasks match. Nothing was done") {
		t.Error(page)
	}
	if got := c.text(`select count(*) from provider.requests`); got != "0" {
		t.Errorf("%s requests for looking", got)
	}
	forms := []string{c.form(address, "reason", "outage").Encode(), c.form(address, "reason", "outage too").Encode()}
	ready, said := make(chan struct{}), make(chan reply, 4)
	for i := range 4 {
		go func() {
			<-ready
			r, err := c.ask(context.WithoutCancel(t.Context()), "ann", "operator", http.MethodPost, "/recover", formType, forms[i%2])
			if err != nil {
				t.Error(err)
			}
			said <- r
		}()
	}
	close(ready)
	for range 4 {
		if r := <-said; r.status != http.StatusSeeOther || !strings.Contains(c.notice(r.location), "Done.") {
			t.Errorf("%d %s: %s", r.status, r.location, c.notice(r.location))
		}
	}
	if got := c.text(`select string_agg(status || ' ' || n, ', ' order by status) from (select status, count(*) n from settle.tasks group by 1) x`); got != "failed 200, finished 600, needs_review 200" {
		t.Error(got)
	}
	if got := c.text(`select count(*) || ' ' || count(distinct idempotency_key) from provider.charges`); got != "700 700" {
		t.Errorf("effects and keys: %s", got)
	}
	if got := c.text(`select max(attempts) from settle.tasks`); got != "3" {
		t.Errorf("%s attempts", got)
	}
}

// The browser may ask before the act is written down: it is under way all the same.
func TestAnActThatIsNotWrittenDownYet(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(a *admin.ActsConfig) { a.Patience = time.Millisecond })
	task := c.job(1, isUnknown)
	c.happened(1)
	tx, err := c.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := tx.Exec(t.Context(), `lock table settle.presses in exclusive mode`); err != nil { // nobody writes, all read
		t.Fatal(err)
	}
	path := fmt.Sprintf("/tasks/%d/ask", task.TaskID)
	r := c.as("ann", "operator", http.MethodPost, path, formType, c.form(path, "reason", "the customer called").Encode())
	if says := c.notice(r.location); !strings.HasPrefix(says, "Still being done.") {
		t.Errorf("%q", says)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.acts.Close(t.Context()) // waits for it
	if says := c.notice(r.location); !strings.HasPrefix(says, "Done.") {
		t.Errorf("%q", says)
	}
}

// The provider is slow, and the browser does not wait: the act goes on, and the page says what it knows.
func TestASlowProvider(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(a *admin.ActsConfig) { a.Patience = time.Millisecond })
	task := c.job(1, isUnknown)
	c.happened(1)
	path := fmt.Sprintf("/tasks/%d/ask", task.TaskID)
	body := c.form(path, "reason", "the customer called").Encode()
	entered, release := c.hold.start()
	defer release()
	r := c.as("ann", "operator", http.MethodPost, path, formType, body)
	if says := c.notice(r.location); !strings.HasPrefix(says, "Still being done. It goes on whether or not you wait: look again.") {
		t.Error(says)
	}
	<-entered
	if again := c.as("ann", "operator", http.MethodPost, path, formType, body); again.location != r.location {
		t.Errorf("pressed again: %s and %s", again.location, r.location)
	}
	if other := c.as("ann", "operator", http.MethodPost, path, formType, strings.Replace(body, "customer", "friend", 1)); other.status != http.StatusConflict {
		t.Errorf("the form with another reason meanwhile: %d", other.status)
	}
	if now := c.now(task.TaskID); now.Status != idemstore.Unknown {
		t.Errorf("it is %s", now.Status)
	}
	release()
	c.acts.Close(t.Context()) // waits for it
	if says := c.notice(r.location); !strings.HasPrefix(says, "Done. The provider was asked: it happened as ch_1.") {
		t.Error(says)
	}
	if lines := c.text(`select count(*) from settle.task_events`); lines != "1" {
		t.Errorf("%s lines", lines)
	}
}

func TestTheBrowserGoesAway(t *testing.T) {
	t.Parallel()
	c := openCounter(t)
	task := c.job(1, isUnknown)
	c.happened(1)
	path := fmt.Sprintf("/tasks/%d/ask", task.TaskID)
	body := c.form(path, "reason", "the customer called").Encode()
	entered, release := c.hold.start()
	defer release()
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := c.ask(ctx, "ann", "operator", http.MethodPost, path, formType, body)
		gone <- err
	}()
	<-entered
	leave()
	if err := <-gone; err == nil {
		t.Fatal("the browser waited")
	}
	release()
	c.acts.Close(t.Context())
	if now := c.now(task.TaskID); now.Status != idemstore.Finished || now.ExternalID != "ch_1" {
		t.Errorf("%s %s", now.Status, now.ExternalID)
	}
	if r := c.as("ann", "operator", http.MethodPost, path, formType, body); r.status != http.StatusServiceUnavailable || !strings.Contains(r.body, "being stopped") {
		t.Errorf("after the end: %d", r.status)
	}
}

// What is cut short is not said to be done.
func TestStoppingCutsAnActShort(t *testing.T) {
	t.Parallel()
	c := openCounter(t, func(a *admin.ActsConfig) { a.Patience = time.Millisecond })
	task := c.job(1, isUnknown)
	c.happened(1)
	path := fmt.Sprintf("/tasks/%d/ask", task.TaskID)
	form := c.form(path, "reason", "the customer called")
	entered, release := c.hold.start()
	defer release()
	r := c.as("ann", "operator", http.MethodPost, path, formType, form.Encode())
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.acts.Close(ctx)
	if says := c.notice(r.location); !strings.HasPrefix(says, "Not known, or only in part. It went wrong on the way") {
		t.Error(says)
	}
	if now := c.now(task.TaskID); now.Shown() != task.Shown() {
		t.Errorf("%s after attempt %d", now.Status, now.Attempt)
	}
	c.exec(`update settle.presses set outcome = null, message = null, ended_at = null`)
	if says := c.notice(r.location); !strings.HasPrefix(says, "Not known, or only in part. This screen is not at work on it.") {
		t.Errorf("of an act whose screen died: %s", says)
	}
}
