package bench

import (
	"context"
	"crypto/md5" //nolint:gosec // as the rows are named
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/admin"
)

const (
	offered  = 2000 // jobs per second
	searches = 200  // per second
	longest  = 30 * time.Second
)

// offer publishes jobs at a fixed rate, whatever becomes of them, and waits until all are acked. Its figure is jobs per
// second up to then: workers that keep up make it the offered rate.
func offer(ctx context.Context, s *Stage) error {
	return paced(ctx, s.Jobs, offered, func(i int) error {
		_, err := s.JS.PublishAsync(s.Subject(), s.Body(i))
		s.queued.Add(1)
		return err
	})
}

func offeredAcked(ctx context.Context, s *Stage) error {
	if err := offer(ctx, s); err != nil {
		return err
	}
	return s.AwaitAcked(ctx)
}

// paced calls f so many times, perSecond times a second from now on; what is late is caught up with.
func paced(ctx context.Context, n, perSecond int, f func(int) error) error {
	began := time.Now()
	for i := range n {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond))); wait > 0 {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(wait):
			}
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// searched measures the offered jobs while people search on the support screen, and how long these wait: from the moment at
// which a search was to be sent to the last byte of its answer.
func searched(ctx context.Context, s *Stage) ([]float64, error) {
	screen, err := admin.New(admin.Config{Store: idemstore.New(s.Pool, time.Second)})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: screen, ReadHeaderTimeout: longest}
	go func() { _ = server.Serve(listener) }() // it returns when it is closed
	defer func() { _ = server.Close() }()

	var times []float64
	figures, err := Rate(engine(external, unseen, func(ctx context.Context, s *Stage) error {
		looking, stop := context.WithCancel(ctx)
		defer stop()
		over := make(chan error, 1)
		go func() {
			var err error
			times, err = s.searchAt(looking, "http://"+listener.Addr().String())
			over <- err
		}()
		err := offeredAcked(ctx, s)
		return errors.Join(err, <-over)
	}))(ctx, s)
	if err != nil {
		return nil, err
	}
	slices.Sort(times)
	return append(figures, percentile(times, 50), percentile(times, 99)), nil
}

// searchAt searches for as long as the jobs are offered, and gives the milliseconds that each search took.
func (s *Stage) searchAt(ctx context.Context, base string) (times []float64, err error) {
	client := &http.Client{Timeout: longest, Transport: &http.Transport{MaxIdleConnsPerHost: searches}}
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var under sync.WaitGroup
	var failed []error
	err = paced(ctx, max(s.Jobs*searches/offered, 1), searches, func(i int) error {
		began, query := time.Now(), s.query(i)
		under.Go(func() {
			err := look(ctx, client, base+"/api/find?q="+url.QueryEscape(query))
			mu.Lock()
			defer mu.Unlock()
			times = append(times, float64(time.Since(began))/float64(time.Millisecond))
			if err != nil {
				failed = append(failed, err)
			}
		})
		return nil
	})
	under.Wait()
	return times, errors.Join(append(failed, err)...)
}

// query is what people have in hand: a reference or key of an older task, the beginning of one, or something that nobody has.
func (s *Stage) query(i int) string {
	n := rand.IntN(s.rows) + 1         //nolint:gosec // any
	sum := md5.Sum(fmt.Append(nil, n)) //nolint:gosec // as the rows are named
	key := hex.EncodeToString(sum[:])[:16] + fmt.Sprintf("-s%d", n)
	switch i % 4 {
	case 0:
		return key[:8]
	case 1:
		return "nobody-" + key
	default:
		return key
	}
}

func look(ctx context.Context, client *http.Client, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the support screen answers a search with %s", resp.Status)
	}
	return nil
}
