package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/net/html"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/handlers"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/provider"
)

// counter is a desk at which operators act, with a provider behind it. Who acts is said in headers, as a proxy would.
type counter struct {
	desk

	acts        *admin.Acts
	providerURL string
	provider    *provider.Server
	hold        *holder
}

// holder keeps calls of the provider waiting while it is told to.
type holder struct {
	mu      sync.Mutex
	entered chan struct{} // nil: nothing is held
	release chan struct{}
}

func (h *holder) at(ctx context.Context, at provider.Point, _ provider.Call) {
	h.mu.Lock()
	entered, release := h.entered, h.release
	h.mu.Unlock()
	if at != provider.Received || entered == nil {
		return
	}
	entered <- struct{}{}
	select {
	case <-release:
	case <-ctx.Done():
	}
}

// start holds calls from now on, until they are released.
func (h *holder) start() (entered <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entered, h.release = make(chan struct{}, 100), make(chan struct{})
	return h.entered, sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.entered = nil
		close(h.release)
	})
}

func openCounter(t *testing.T, change ...func(*admin.ActsConfig)) *counter {
	t.Helper()
	pool := devtest.Pool(t)
	c := &counter{hold: &holder{}}
	c.provider = provider.New(pool, provider.Options{OnPoint: c.hold.at})
	api, err := c.provider.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- c.provider.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	c.providerURL = api
	c.serve(t, pool, api, change...)
	return c
}

// beside is another process that serves the same screen.
func (c *counter) beside(t *testing.T) *counter {
	t.Helper()
	other := &counter{provider: c.provider, hold: c.hold}
	other.serve(t, c.pool, c.providerURL)
	return other
}

func (c *counter) serve(t *testing.T, pool *pgxpool.Pool, api string, change ...func(*admin.ActsConfig)) {
	t.Helper()
	client, err := handlers.NewClient(handlers.ClientOptions{URL: api, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	def := handlers.Charge(client, handlers.ChargeOptions{CreateOrders: true, Provider: consumer.Provider{Identity: "provider"}})
	config := consumer.Config{Logger: slog.New(slog.DiscardHandler), Policy: consumer.Policy{Deadline: 20 * time.Second}}
	operator, err := consumer.NewOperator(pool, config, def)
	if err != nil {
		t.Fatal(err)
	}
	a := admin.ActsConfig{Store: idemstore.New(pool, time.Minute), Operator: operator, Patience: time.Minute,
		Recover: func(ctx context.Context, _ string, o consumer.RecoverOptions, report func(consumer.Recovered)) error {
			engine, err := consumer.New(pool, nil, config, def)
			if err != nil {
				return err
			}
			return engine.Recover(ctx, o, report)
		}}
	for _, f := range change {
		f(&a)
	}
	if c.acts, err = admin.NewActs(a); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.acts.Close(context.Background()) })
	c.desk = openOn(t, pool, func(s *admin.Config) {
		s.Acts = c.acts
		s.Actor = func(r *http.Request) (string, bool) {
			return r.Header.Get("X-Actor"), r.Header.Get("X-Role") == "operator"
		}
	})
}

// job puts a task into the table whose order is there.
func (c *counter) job(n int, set string) idemstore.Task {
	c.t.Helper()
	task := c.add(fmt.Sprintf("order_%d", n), "")
	if set != "" {
		set = ", " + set
	}
	c.exec(`update settle.tasks set payload = format('{"order_id":"%s","customer_id":"c_17","amount":1200,"currency":"EUR"}', $2::text)::bytea, provider = 'provider'`+
		set+` where id = $1`, task.TaskID, fmt.Sprint(n))
	c.exec(`insert into shop.orders (order_id, customer_id, amount, currency) values ($1, 'c_17', 1200, 'EUR')`, fmt.Sprint(n))
	return c.now(task.TaskID)
}

func (c *counter) now(id int64) idemstore.Task {
	c.t.Helper()
	t, err := c.store.FindByID(c.t.Context(), id)
	if err != nil {
		c.t.Fatal(err)
	}
	return t
}

// happened makes the effect of an order, as an attempt whose answer was lost.
func (c *counter) happened(n int) {
	c.exec(`insert into provider.charges (charge_id, idempotency_key, order_id, customer_id, amount, currency, status, payload_hash)
		values ('ch_' || $1::text, 'order_' || $1::text, $1::text, 'c_17', '1200', 'EUR', 'succeeded', '\x00')`, fmt.Sprint(n))
}

func (c *counter) text(sql string, args ...any) (out string) {
	c.t.Helper()
	if err := c.pool.QueryRow(c.t.Context(), `select coalesce((`+sql+`)::text, '')`, args...).Scan(&out); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// effects are how many requests the provider was sent, and how many effects they had.
func (c *counter) effects() string {
	c.t.Helper()
	return c.text(`select (select count(*) from provider.requests where method = 'POST') || ' ' || (select count(*) from provider.charges)`)
}

// everything is all that an act could change.
func (c *counter) everything() string {
	c.t.Helper()
	return c.text(`select md5(string_agg(x, '|')) from (
		select 'a' || t::text x from settle.tasks t union all select 'b' || e::text from settle.task_events e union all select 'c' || p::text from settle.presses p
		union all select 'd' || k::text from settle.controls k union all select 'e' || o::text from shop.orders o
		union all select 'f' || r::text from provider.requests r union all select 'g' || r::text from settle.refusals r order by 1) y`)
}

// reply is an answer to a form.
type reply struct {
	status   int
	location string
	body     string
}

// ask sends a request as somebody. Role is operator, viewer or empty.
func (c *counter) ask(ctx context.Context, actor, role, method, path, contentType, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for name, value := range map[string]string{"X-Actor": actor, "X-Role": role, "Content-Type": contentType} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header.Get("Location"), string(text)}, err
}

const formType = "application/x-www-form-urlencoded"

func (c *counter) as(actor, role, method, path, contentType, body string) reply {
	c.t.Helper()
	r, err := c.ask(c.t.Context(), actor, role, method, path, contentType, body)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// open reads a page as ann, who is an operator.
func (c *counter) open(path string) string {
	c.t.Helper()
	r := c.as("ann", "operator", http.MethodGet, path, "", "")
	if r.status != http.StatusOK {
		c.t.Fatalf("%s: %d\n%s", path, r.status, r.body)
	}
	return r.body
}

// form is what the browser would send of the form on a page, with these fields filled in.
func (c *counter) form(path string, fill ...string) url.Values {
	c.t.Helper()
	page := c.open(path)
	v := fields(c.t, page)
	if v == nil {
		c.t.Fatalf("%s has no form:\n%s", path, textOf(c.t, page))
	}
	for i := 0; i+1 < len(fill); i += 2 {
		v.Set(fill[i], fill[i+1])
	}
	return v
}

// fields are those of the form with method post that is not for signing out; nil: there is none.
func fields(t *testing.T, page string) url.Values {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Data != "form" || attribute(n, "class") != "act" {
			continue
		}
		v := url.Values{}
		for in := range n.Descendants() {
			kind := attribute(in, "type")
			if in.Data != "input" || kind == "checkbox" || kind == "radio" && !has(in, "checked") {
				continue
			}
			v.Set(attribute(in, "name"), attribute(in, "value"))
		}
		return v
	}
	return nil
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	for _, a := range n.Attr {
		if a.Key == name {
			return true
		}
	}
	return false
}

// send sends a form as ann and reads what came of it.
func (c *counter) send(path string, v url.Values) (notice string) {
	c.t.Helper()
	r := c.as("ann", "operator", http.MethodPost, path, formType, v.Encode())
	if r.status != http.StatusSeeOther {
		c.t.Fatalf("%s: %d\n%s", path, r.status, textOf(c.t, r.body))
	}
	return c.notice(r.location)
}

// notice is what a page says came of the act that its address names.
func (c *counter) notice(path string) string {
	c.t.Helper()
	root, err := html.Parse(strings.NewReader(c.open(path)))
	if err != nil {
		c.t.Fatal(err)
	}
	for n := range root.Descendants() {
		if strings.HasPrefix(attribute(n, "class"), "came") {
			var text strings.Builder
			for in := range n.Descendants() {
				if in.Type == html.TextNode {
					text.WriteString(in.Data)
				}
			}
			return strings.Join(strings.Fields(text.String()), " ")
		}
	}
	return ""
}

// press opens the form of an act on a task, fills it in and sends it.
func (c *counter) press(task idemstore.Task, act string, fill ...string) (notice string) {
	c.t.Helper()
	path := fmt.Sprintf("/tasks/%d/%s", task.TaskID, act)
	return c.send(path, c.form(path, append([]string{"reason", "the customer called"}, fill...)...))
}

// post asks the API as ann.
func (c *counter) post(path string, order any) (status int, answer map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(order)
	if err != nil {
		c.t.Fatal(err)
	}
	r := c.as("ann", "operator", http.MethodPost, "/api"+path, "application/json", string(body))
	if err := json.Unmarshal([]byte(r.body), &answer); err != nil {
		c.t.Fatalf("%s: %d %s", path, r.status, r.body)
	}
	return r.status, answer
}
