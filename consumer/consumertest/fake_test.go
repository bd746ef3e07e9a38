package consumertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/consumer/consumertest"
)

// parcel is a job, and label its result.
type parcel struct {
	Order string `json:"order"`
	Grams int    `json:"grams"`
	Sent  string `json:"sent_at,omitempty"`
}

type label struct {
	Number string `json:"number"`
}

// courier is a provider that keeps keys.
type courier struct {
	mu     sync.Mutex
	byKey  map[string]label
	orders map[string]int
}

func newCourier() *courier { return &courier{byKey: map[string]label{}, orders: map[string]int{}} }

func (c *courier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Method == http.MethodGet {
		l, ok := c.byKey[r.URL.Query().Get("key")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(l)
		return
	}
	var p parcel
	if json.NewDecoder(r.Body).Decode(&p) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	l, known := c.byKey[key]
	if !known {
		c.orders[p.Order]++
		l = label{fmt.Sprintf("L-%s-%d", p.Order, c.orders[p.Order])}
		c.byKey[key] = l
	}
	_ = json.NewEncoder(w).Encode(l)
}

func (c *courier) booked(p parcel) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders[p.Order]
}

// client speaks to it.
type client struct {
	url  string
	http *http.Client
}

func newClient(url string) *client {
	return &client{url, &http.Client{Transport: &consumer.Transport{}}}
}

func (c *client) book(ctx context.Context, key string, p parcel) (label, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return label{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/parcels", bytes.NewReader(body))
	if err != nil {
		return label{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	l, status, err := c.do(req)
	if status == http.StatusPaymentRequired {
		return l, consumer.Refused(errors.New("not taken"))
	}
	return l, err
}

func (c *client) find(ctx context.Context, key string) (label, consumer.Verdict, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/parcels?key="+url.QueryEscape(key), http.NoBody)
	if err != nil {
		return label{}, consumer.CannotTell, err
	}
	l, status, err := c.do(req)
	switch {
	case status == http.StatusNotFound:
		return l, consumer.Absent, nil
	case err != nil:
		return l, consumer.CannotTell, err
	}
	return l, consumer.Found, nil
}

func (c *client) do(req *http.Request) (l label, status int, err error) {
	res, err := c.http.Do(req)
	if err != nil {
		return l, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return l, res.StatusCode, fmt.Errorf("the courier answered %d", res.StatusCode)
	}
	err = json.NewDecoder(res.Body).Decode(&l)
	return l, res.StatusCode, err
}

func bookParcel(c *client) consumer.Kind[parcel, label] {
	return consumer.Kind[parcel, label]{
		Name:     "parcel.book",
		Contract: consumer.Contract{Effect: "books a parcel"},
		Provider: consumer.Provider{Identity: c.url},
		Content:  consumer.Content{Volatile: []string{"sent_at"}},
		Key:      func(p parcel) (string, error) { return "parcel_" + p.Order, nil },
		Perform: func(ctx context.Context, a *consumer.Attempt[parcel]) (label, error) {
			return c.book(ctx, a.ProviderKey, a.Job)
		},
		Lookup: func(ctx context.Context, a *consumer.Attempt[parcel]) (label, consumer.Verdict, error) {
			return c.find(ctx, a.ProviderKey)
		},
		ExternalID: func(l label) string { return l.Number },
		Commit: func(w *consumer.Writes, f consumer.Final[parcel, label]) error {
			if f.Refused == "" {
				w.Exec(`insert into parcels.labels values ($1, $2)`, f.Job.Order, f.ExternalID)
				w.Emit("events.parcel.booked", f.Key, f.Result)
			}
			return nil
		},
	}
}

func subject(change func(*consumer.Kind[parcel, label], *client)) consumertest.Subject[parcel, label] {
	return consumertest.Subject[parcel, label]{
		Kind: func(url string) consumer.Kind[parcel, label] {
			c := newClient(url)
			k := bookParcel(c)
			if change != nil {
				change(&k, c)
			}
			return k
		},
		Provider: func() consumertest.Provider[parcel] {
			c := newCourier()
			return consumertest.Provider[parcel]{Handler: c, Effects: c.booked}
		},
		Jobs: []parcel{{Order: "1", Grams: 500, Sent: "09:00"}, {Order: "2", Grams: 700}},
		Setup: func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, `create schema parcels; create table parcels.labels (order_id text primary key, label text not null)`)
			return err
		},
	}
}

func TestAKindThatIsRight(t *testing.T) {
	t.Parallel()
	consumertest.Break(t, subject(nil))
}

// The same without a look-up: the provider's memory for keys is enough.
func TestAKindWithoutALookup(t *testing.T) {
	t.Parallel()
	consumertest.Break(t, subject(func(k *consumer.Kind[parcel, label], _ *client) { k.Lookup = nil }))
}
