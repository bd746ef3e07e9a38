package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// health remembers whether the database answers, so that no messages are taken while it does not: each of them
// would only be given back.
type health struct {
	log *slog.Logger
	mu  sync.Mutex
	err error
}

// failed notes that the database did not answer.
func (h *health) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// state is nil while the database answers.
func (h *health) state() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// await blocks while the database is known not to answer, asking it with growing pauses.
func (h *health) await(ctx context.Context, pool *pgxpool.Pool) {
	for n := 0; ctx.Err() == nil && h.state() != nil; n++ {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := pool.Ping(asking)
		cancel()
		h.failed(err)
		if err == nil {
			return
		}
		h.log.WarnContext(ctx, "database does not answer; no messages are taken", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(min(time.Second<<n, 5*time.Second)):
		}
	}
}
