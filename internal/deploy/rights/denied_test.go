package rights

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle"
)

// refusedStatements are what no role but the owner may do, and what single roles may not.
var refusedStatements = map[string][]string{
	"worker": {
		"delete from settle.tasks", "delete from settle.task_events", "update settle.task_events set reason = ''",
		"delete from settle.refusals", "update settle.refusals set body = ''", "delete from settle.task_refs", "truncate settle.tasks",
		"insert into settle.controls (kind, mode, actor, reason) values ('payment.charge', 'running', 'me', 'why')",
		"delete from settle.presses", "select from settle.presses", "delete from shop.payments", "update shop.payments set amount = 0",
		"update settle.schema_version set version = 2",
		"alter table settle.tasks disable trigger all", "drop table settle.outbox", "create table settle.mine ()", "create schema mine",
		"create function settle.fence(boolean) returns int language sql as 'select 1'", "set role settle_migrator",
	},
	"recovery": {
		"insert into settle.tasks (kind) values ('x')", "delete from settle.tasks", "delete from settle.task_events", "delete from settle.outbox",
		"update settle.outbox set payload = ''", "select from settle.presses", "create table settle.mine ()",
	},
	"archiver": {
		"delete from settle.tasks", "delete from settle.task_events", "insert into settle.task_events (task_id) values (1)",
		"select from settle.refusals", "select from shop.orders", "create table settle.mine ()",
	},
	"viewer": {
		"update settle.tasks set status = 'finished'", "insert into settle.task_events (task_id) values (1)", "delete from settle.tasks",
		"select from settle.tasks for update", "insert into settle.controls (kind) values ('x')",
		"insert into settle.presses (act) values ('x')", "select from shop.orders", "set role settle_operator",
	},
	"operator": {
		"delete from settle.tasks", "delete from settle.task_events", "update settle.task_events set reason = ''", "delete from settle.presses",
		"update settle.controls set reason = ''", "delete from settle.refusals", "create table settle.mine ()",
	},
	"publisher": {
		"select payload from settle.outbox", "delete from settle.outbox", "update settle.outbox set payload = ''", "select from settle.tasks",
		"create table settle.mine ()",
	},
}

func (s *stage) noMoreInPostgres() {
	for role, statements := range refusedStatements {
		session := s.session(role)
		for _, statement := range statements {
			_, err := session.Exec(s.t.Context(), statement)
			var refused *pgconn.PgError
			if !errors.As(err, &refused) || refused.Code != "42501" {
				s.t.Errorf("%s: %s: %v, want it refused", role, statement, err)
			}
		}
	}
	s.everyTableIsThoughtOf()
}

// everyTableIsThoughtOf finds a table that a later schema adds, and nobody has granted.
func (s *stage) everyTableIsThoughtOf() {
	own, _, _ := strings.Cut(settle.Schema(), "create schema if not exists shop")
	for _, m := range regexp.MustCompile(`create table if not exists (settle\.\w+)`).FindAllStringSubmatch(own, -1) {
		if !ask[bool](s, "select has_table_privilege('settle_viewer', $1, 'select')", m[1]) {
			s.t.Errorf("roles.sql does not say who reads %s", m[1])
		}
	}
}

// refusedSubjects are what users of NATS may not publish and not hear.
var refusedSubjects = map[string]struct{ publish, subscribe []string }{
	"publisher": {
		publish: []string{
			"$JS.ACK.JOBS.payment-charge.1.1.1.1.0", "$JS.API.STREAM.PURGE.JOBS", "$JS.API.STREAM.DELETE.JOBS", "$JS.API.STREAM.CREATE.MINE",
			"$JS.API.STREAM.UPDATE.JOBS", "$JS.API.STREAM.MSG.DELETE.JOBS", "$JS.API.STREAM.MSG.GET.JOBS", "$JS.API.DIRECT.GET.JOBS",
			"$JS.API.CONSUMER.CREATE.JOBS.mine.jobs.payment.charge", "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.mine",
			"$JS.API.CONSUMER.MSG.NEXT.JOBS.payment-charge", "$JS.API.CONSUMER.DELETE.JOBS.payment-charge", "events.payment.charged",
			"_INBOX.worker.x", "$SYS.REQ.SERVER.PING",
		},
		subscribe: []string{"_INBOX.worker.>", "_INBOX.>", "jobs.>", "events.>", "$JS.ACK.>", ">"},
	},
	"worker": {
		publish: []string{
			"$JS.API.STREAM.PURGE.JOBS", "$JS.API.STREAM.DELETE.JOBS", "$JS.API.STREAM.CREATE.MINE", "$JS.API.STREAM.UPDATE.JOBS",
			"$JS.API.STREAM.MSG.DELETE.JOBS", "$JS.API.CONSUMER.CREATE.JOBS.mine.jobs.payment.charge", "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.mine",
			"$JS.API.CONSUMER.DELETE.JOBS.payment-charge", "$JS.API.CONSUMER.PAUSE.JOBS.payment-charge", "$JS.API.STREAM.PURGE.EVENTS",
			"$JS.API.STREAM.RESTORE.JOBS", "$JS.API.STREAM.SNAPSHOT.JOBS", "_INBOX.admin.x",
		},
		subscribe: []string{"_INBOX.>", "_INBOX.publisher.>", "jobs.>", "$JS.ACK.>", ">"},
	},
	"screen": {
		publish: []string{
			"$JS.ACK.JOBS.payment-charge.1.1.1.1.0", "$JS.API.STREAM.PURGE.JOBS", "$JS.API.STREAM.DELETE.JOBS", "$JS.API.STREAM.MSG.DELETE.JOBS",
			"$JS.API.CONSUMER.MSG.NEXT.JOBS.payment-charge", "$JS.API.CONSUMER.DELETE.JOBS.payment-charge", "events.payment.charged",
		},
		subscribe: []string{"_INBOX.>", "jobs.>", "events.>"},
	},
}

func (s *stage) noMoreInNATS() {
	for name, subjects := range refusedSubjects {
		js, refused := s.connect(name)
		conn := js.Conn()
		for _, subject := range subjects.publish {
			s.refuses(name, "publish to "+subject, subject, refused, conn.PublishRequest(subject, "_INBOX."+name+".x", nil))
		}
		for _, subject := range subjects.subscribe {
			_, err := conn.SubscribeSync(subject)
			s.refuses(name, "subscribe to "+subject, subject, refused, err)
		}
	}
	// The other side: it is the rights that refuse, and who has them can.
	admin, _ := s.connect("admin")
	stream, err := admin.Stream(s.t.Context(), "JOBS")
	if err == nil {
		err = stream.Purge(s.t.Context())
	}
	if err != nil {
		s.t.Errorf("settle-admin: purge: %v", err)
	}
}

func (s *stage) refuses(user, what, subject string, refused <-chan error, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s: %s: %v", user, what, err)
		return
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-refused:
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			s.t.Errorf("%s: %s: %v", user, what, err)
		}
	case <-ctx.Done():
		s.t.Errorf("%s may %s", user, what)
	}
}

// strangers are let in nowhere.
func (s *stage) strangers() {
	ca := nats.RootCAs(s.certs.file("ca.pem"))
	cert, key := s.certs.certificate("settle-nobody")
	other := newAuthority(s.t)
	foreignCert, foreignKey := other.certificate("settle-admin")
	for what, options := range map[string][]nats.Option{
		"a name that is no user":         {ca, nats.ClientCert(cert, key)},
		"no certificate":                 {ca},
		"a user of another authority":    {ca, nats.ClientCert(foreignCert, foreignKey)},
		"a server that it does not know": {nats.RootCAs(other.file("ca.pem")), nats.ClientCert(s.certs.file("settle-worker.pem"), s.certs.file("settle-worker-key.pem"))},
	} {
		if conn, err := nats.Connect(s.nats, options...); err == nil {
			conn.Close()
			s.t.Errorf("the server lets in %s", what)
		}
	}
}
