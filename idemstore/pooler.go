package idemstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	poolerRounds = 4               // of three statements each
	poolerLimit  = 5 * time.Second // of the whole look, which takes a few milliseconds
)

// CheckExecMode returns ErrExecMode, with the setting to make, if the pool's exec mode prepares statements and a pooler
// on the way to the server does not keep them: then they vanish now and then. Modes that prepare nothing are not
// looked into. A direct connection costs sixteen round trips, on two connections if the pool may have two.
//
// Any other error means that the look failed, for example because the database is away, and may be repeated.
func (s *Store) CheckExecMode(ctx context.Context) error {
	config := s.pool.Config()
	mode := config.ConnConfig.DefaultQueryExecMode
	if mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, poolerLimit)
	defer cancel()
	// What describe_exec prepares has no name, and poolers that carry named statements along do not carry that.
	l := look{name: "settle_look_" + uuid.NewString(), pinned: mode == pgx.QueryExecModeDescribeExec}
	err := l.from(ctx, s.pool, config.MaxConns > 1)
	switch {
	case errors.Is(err, errStray):
		return fmt.Errorf("%w: %s needs prepared statements, and a pooler between here and the server does not keep them; "+
			"set default_query_exec_mode=exec in DATABASE_URL", ErrExecMode, strings.ReplaceAll(mode.String(), " ", "_"))
	case err != nil:
		return fmt.Errorf("check exec mode: %w", err)
	}
	return nil
}

// errStray: a prepared statement was missing, or another connection's was there.
var errStray = errors.New("a prepared statement strayed")

// look prepares a statement of the same name on two connections, each with its own answer, and runs them in turn.
// Connections with sessions of their own cannot tell that from being alone. A pooler that hands out sessions by
// transaction mixes them up, whichever session it takes next: with one session, the other's statement is in the way;
// with two in turn, the second of two runs meets the other's; with more, or under load, there is none.
//
// The statement has a name that nobody else has. Without one, a stranger's statement would be run where it is missing.
type look struct {
	name   string
	pinned bool // the session itself must stay the same, too
}

func (l look) from(ctx context.Context, pool *pgxpool.Pool, both bool) error {
	first, err := pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer first.Release()
	lookers := []*looker{{look: l, conn: first.Conn().PgConn(), answer: "a"}}
	if both {
		second, err := pool.Acquire(ctx)
		if err != nil {
			return fmt.Errorf("acquire connection: %w", err)
		}
		defer second.Release()
		lookers = append(lookers, &looker{look: l, conn: second.Conn().PgConn(), answer: "b"})
	}
	err = inTurn(ctx, lookers)
	for _, x := range lookers { // the pool's connections live on
		_ = x.conn.Deallocate(ctx, l.name)
	}
	if state := sqlState(err); state == "26000" || state == "42P05" { // not there; there already
		return errStray
	}
	return err
}

func inTurn(ctx context.Context, lookers []*looker) error {
	for _, x := range lookers {
		if err := x.prepare(ctx); err != nil {
			return err
		}
	}
	first, last := lookers[0], lookers[len(lookers)-1]
	for range poolerRounds {
		for _, x := range []*looker{first, first, last} {
			if err := x.run(ctx); err != nil {
				return err
			}
		}
		if first.pinned && first != last && first.session == last.session {
			return errStray
		}
	}
	return nil
}

// looker is a connection with a prepared statement that says whose it is.
type looker struct {
	look
	conn    *pgconn.PgConn
	answer  string
	session string // that ran the statement first
}

func (l *looker) prepare(ctx context.Context) error {
	_, err := l.conn.Prepare(ctx, l.name, "/* settle:look */ select '"+l.answer+"', pg_backend_pid() || ' ' || pg_postmaster_start_time()", nil)
	return err
}

func (l *looker) run(ctx context.Context) error {
	result := l.conn.ExecPrepared(ctx, l.name, nil, nil, nil).Read()
	if result.Err != nil {
		return result.Err
	}
	answer, session := string(result.Rows[0][0]), string(result.Rows[0][1])
	if l.session == "" {
		l.session = session
	}
	if answer != l.answer || l.pinned && session != l.session {
		return errStray
	}
	return nil
}
