package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// usage is what has been used up to a moment, or between two. Processor time says more than the clock does where the
// machine is shared: a neighbour makes a job take longer, but hardly makes it cost more.
type usage struct {
	process  time.Duration // of this process: worker, broker, and the bench itself
	postgres time.Duration // of the server with all its sessions; 0 where there is no /proc
	wal      int64         // bytes
	commits  int64
	updates  int64 // of rows, in all tables
	hot      int64 // those of them that touched no index
}

func (u usage) plus(o usage) usage {
	return usage{u.process + o.process, u.postgres + o.postgres, u.wal + o.wal, u.commits + o.commits,
		u.updates + o.updates, u.hot + o.hot}
}

func (u usage) minus(o usage) usage {
	return usage{u.process - o.process, u.postgres - o.postgres, u.wal - o.wal, u.commits - o.commits,
		u.updates - o.updates, u.hot - o.hot}
}

// PerJob is what a job has used.
type PerJob struct {
	Process  float64 `json:"process_us"`  // µs of processor time: worker, broker and the bench itself
	Postgres float64 `json:"postgres_us"` // µs of processor time
	WAL      float64 `json:"wal_bytes"`
	Commits  float64 `json:"commits"`
	HOT      float64 `json:"hot_share"` // of updated rows, those that touched no index
}

func (u usage) perJob(n int) *PerJob {
	per := func(v int64) float64 { return float64(v) / float64(n) }
	return &PerJob{per(u.process.Microseconds()), per(u.postgres.Microseconds()), per(u.wal), per(u.commits),
		float64(u.hot) / max(float64(u.updates), 1)}
}

const (
	usageOf = `select pg_backend_pid(), pg_current_wal_insert_lsn() - '0/0',
  (select xact_commit from pg_stat_database where datname = current_database()),
  (select coalesce(sum(n_tup_upd), 0)::bigint from pg_stat_user_tables),
  (select coalesce(sum(n_tup_hot_upd), 0)::bigint from pg_stat_user_tables)`
	othersHere = `select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`
)

// use reads what has been used, where all of it is on this machine and nobody else uses it. The sessions of the measurement
// must be over: they report what they did when they end.
func (s *Stage) use(ctx context.Context) (u usage, err error) {
	if !s.servers.ours {
		return u, nil
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, err
	}
	u.process = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return u, err
	}
	defer conn.Close(ctx)
	if err := alone(ctx, conn); err != nil {
		return u, err
	}
	var session int
	if err := conn.QueryRow(ctx, usageOf).Scan(&session, &u.wal, &u.commits, &u.updates, &u.hot); err != nil {
		return u, err
	}
	u.postgres, err = serverTime(session)
	return u, err
}

// alone waits until no other session is left in the database.
func alone(ctx context.Context, conn *pgx.Conn) error {
	for {
		var others int
		if err := conn.QueryRow(ctx, othersHere).Scan(&others); err != nil || others == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// serverTime is the processor time of a session's server: of its main process, of all its children that have ended,
// and of those that live.
func serverTime(session int) (total time.Duration, err error) {
	own, err := statOf(session)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		pid, _ := strconv.Atoi(filepath.Base(p)) // the pattern begins with a digit
		x, err := statOf(pid)
		switch {
		case err != nil: // it has ended a moment ago, and its parent counts it
		case pid == own.parent:
			total += x.own + x.ended
		case x.parent == own.parent:
			total += x.own
		}
	}
	return total, err
}

// stat is what a line of /proc/PID/stat says.
type stat struct {
	parent     int
	own, ended time.Duration // of the process, and of its children that have ended
}

func statOf(pid int) (s stat, err error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return s, err
	}
	_, rest, _ := strings.Cut(string(line), ") ") // after the name, which may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 15 {
		return s, fmt.Errorf("stat of process %d has %d fields", pid, len(fields))
	}
	const tick = 10 * time.Millisecond
	var n [15]int
	for i := range n {
		n[i], _ = strconv.Atoi(fields[i]) // the first is a letter
	}
	return stat{parent: n[1], own: time.Duration(n[11]+n[12]) * tick, ended: time.Duration(n[13]+n[14]) * tick}, nil
}
