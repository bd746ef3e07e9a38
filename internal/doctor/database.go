package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// mostClockOff is how far clocks may differ before a person who reads times of both is misled.
const mostClockOff = 2 * time.Second

// databaseChecks are about what the server promises.
func databaseChecks() []check {
	return []check{
		{"exec-mode", Error, needsDatabase, true, "whether prepared statements survive the way to the server",
			"statements vanish or are mixed up behind a pooler that hands out sessions by transaction", func(f *Facts) []Finding {
				if f.Database.ExecMode == nil {
					return nil
				}
				return one(f.Database.ExecMode.Error(), Value{"statements", "prepared"}, Value{"statements", "not prepared"},
					"default_query_exec_mode=exec in DATABASE_URL")
			}},
		{"read-only", Error, needsDatabase, true, "whether the server takes writes",
			"no job can be claimed or saved; workers wait for a server that does", func(f *Facts) []Finding {
				if !f.Database.Server.ReadOnly {
					return nil
				}
				return one("the server only reads", Value{"server", "read-only"}, Value{"server", "read-write"},
					"target_session_attrs=read-write in DATABASE_URL, with all hosts")
			}},
		{"fsync-off", Warning, needsDatabase, false, "fsync",
			"a crash of the machine forgets commits, or ruins the database: what was done is done again. Only for tests", func(f *Facts) []Finding {
				return onOff("fsync", f.Database.Server.Fsync)
			}},
		{"full-page-writes-off", Warning, needsDatabase, false, "full_page_writes",
			"a crash of the machine may tear pages of the tables", func(f *Facts) []Finding {
				return onOff("full_page_writes", f.Database.Server.FullPageWrites)
			}},
		{"synchronous-commit", Warning, needsDatabase, false, "synchronous_commit of the session",
			"workers raise it for their own transactions; a job that is enqueued in a transaction of its publisher may be forgotten although " +
				"the publisher was told that it is there", weakCommit},
		{"standby-asynchronous", Warning, needsDatabase, false, "standbys against synchronous_standby_names",
			"a failover forgets the last commits: effects are made again, results are lost. Then run settle recover and compare with the provider",
			asynchronous},
		{"standby-missing", Warning, needsDatabase, false, "synchronous standbys against synchronous_standby_names",
			"each commit waits for a standby that is not there: nothing is claimed or saved", standbyMissing},
		{"clock-database", Warning, needsDatabase, false, "difference between this clock and the database's, by the round trip, against 2s",
			"leases and due times do not depend on it (the database's clock decides them); times in logs and traces do, and so does who reads them",
			func(f *Facts) []Finding { return clockOff(f.Database.Clock, "the database") }},
		{"pool-over-server", Warning, needsDatabase, false, "connections of the pool against max_connections",
			"workers are refused connections, and so is everybody else", func(f *Facts) []Finding {
				if f.PoolSize <= f.Database.Server.Connections {
					return nil
				}
				return one("the pool may want more connections than the server has", Value{"pool", fmt.Sprint(f.PoolSize)},
					Value{"server", fmt.Sprint(f.Database.Server.Connections)}, fmt.Sprintf("pool_max_conns=%d in DATABASE_URL, or a larger max_connections",
						max(f.Database.Server.Connections/2, 1)))
			}},
	}
}

func onOff(name string, on bool) []Finding {
	if on {
		return nil
	}
	return one(name+" is off", Value{name, "off"}, Value{name, "on"}, "alter system set "+name+" = on; select pg_reload_conf();")
}

func weakCommit(f *Facts) []Finding {
	s := f.Database.Server
	switch s.SynchronousCommit {
	case "off", "local", "remote_write":
		if s.SynchronousCommit != "off" && s.StandbyNames == "" {
			return nil // the same as on where no standby is waited for
		}
		return one("commits of other transactions may be forgotten", Value{"synchronous_commit", s.SynchronousCommit}, Value{"synchronous_commit", "on"},
			"alter role "+quoted(s.User)+" set synchronous_commit = on;")
	}
	return nil
}

func asynchronous(f *Facts) []Finding {
	s := f.Database.Server
	if s.Standbys == 0 || s.StandbyNames != "" {
		return nil
	}
	return one("no commit waits for a standby", Value{"standbys", fmt.Sprint(s.Standbys)}, Value{"synchronous ones", "0"}, waitForStandby(s))
}

// waitForStandby names the standbys: a commit that may wait for whatever streams waits for ever once that was a backup.
func waitForStandby(s idemstore.Server) (fix string) {
	if len(s.NamesOfStandbys) == 0 {
		return "give the standby a name (application_name in its primary_conninfo), then ask again"
	}
	var names []string
	for _, n := range s.NamesOfStandbys {
		names = append(names, quoted(n))
	}
	list := strings.ReplaceAll("ANY 1 ("+strings.Join(names, ", ")+")", "'", "''")
	fix = "alter system set synchronous_standby_names = '" + list + "'; select pg_reload_conf();"
	if s.Standbys == 1 {
		return "add a second standby first: with one, its loss stops all commits. Then, with the names of both: " + fix
	}
	return fix
}

func standbyMissing(f *Facts) []Finding {
	s := f.Database.Server
	if s.StandbyNames == "" || s.Standbys > 0 || s.SynchronousStandbys > 0 { // of one that is there, not every session is shown its state
		return nil
	}
	return one("commits wait for "+s.StandbyNames, Value{"synchronous standbys", fmt.Sprint(s.SynchronousStandbys)}, Value{"at least", "1"},
		"start the standby, or: alter system reset synchronous_standby_names; select pg_reload_conf();")
}

func clockOff(c Clock, whose string) []Finding {
	if c.Off() <= mostClockOff {
		return nil
	}
	return one("the clock of "+whose+" differs from that of this machine", Value{"difference", "at least " + c.Off().Round(time.Millisecond).String()},
		Value{"most", mostClockOff.String()}, "run a time service (chrony, systemd-timesyncd) on both machines")
}

// schemaChecks are about what should be in the database.
func schemaChecks() []check {
	return []check{
		{"schema", Error, needsDatabase, true, "version of the schema against that of this build",
			"statements of this build do not fit the tables; workers refuse to start", func(f *Facts) []Finding {
				if f.Database.Schema == nil {
					return nil
				}
				return one(f.Database.Schema.Error(), Value{"schema", "another version, or none"}, Value{"schema", "this build's"}, "settle migrate")
			}},
		{"index-missing", Warning, needsDatabase, false, "indexes against schema.sql",
			"recovery, search or the outbox read whole tables", func(f *Facts) []Finding { return lacking(f, "index", everybody, rebuild) }},
		{"constraint-missing", Error, needsDatabase, false, "constraints against schema.sql",
			"the database no longer refuses what must never be stored: a second row of a key, a task that claims to be untouched and is not",
			func(f *Facts) []Finding { return lacking(f, "constraint", everybody, declareAgain) }},
		{"privilege-missing", Error, needsDatabase, false, "privileges of the user on the tables of settle that a worker with these kinds uses",
			"jobs are claimed and cannot be saved, or the other way round", func(f *Facts) []Finding { return lacking(f, "privilege", f.usedByWorkers, grant) }},
		{"privilege-of-charts", Warning, needsDatabase, false, "privileges of the user to add what a worker counts for the charts of the support screen",
			"the screen shows nothing of what these workers come to, and says that no worker serves their kinds; jobs do not mind",
			func(f *Facts) []Finding { return lacking(f, "privilege", usedByCharts, grant) }},
		{"privilege-of-operators", Warning, needsDatabase, true, "privileges of the user that commands of operators use, and workers do not",
			"settle pause, refusals republish or tasks show fail with this user; workers do not mind", func(f *Facts) []Finding {
				return lacking(f, "privilege", usedByOperators, grant)
			}},
	}
}

func lacking(f *Facts, what string, concerns func(idemstore.Use) bool, fix func(idemstore.Lack, string) string) (out []Finding) {
	for _, l := range f.Database.Lacks {
		if l.What != what || !concerns(l.Use) {
			continue
		}
		state, found := "missing", "none"
		if l.Invalid {
			state, found = "not valid", "unfinished"
		}
		out = append(out, one(fmt.Sprintf("%s %s on %s is %s", what, l.Name, l.On, state), Value{what, found}, Value{what, l.Name},
			fix(l, f.Database.Server.User))...)
	}
	return out
}

func everybody(idemstore.Use) bool { return true }

func usedByCharts(u idemstore.Use) bool { return u == idemstore.UseCharts }

func usedByOperators(u idemstore.Use) bool { return u == idemstore.UseOperators }

// usedByWorkers reports whether a worker with these kinds runs the statements of a use.
func (f *Facts) usedByWorkers(u idemstore.Use) bool {
	return slices.ContainsFunc(f.Kinds, func(k consumer.Description) bool {
		switch u {
		case idemstore.UseAlways:
			return true
		case idemstore.UseSteps:
			return k.HasSteps
		case idemstore.UseGuard:
			return k.HasOrderGuard
		case idemstore.UsePrefix:
			return k.Provider.KeyPrefix != ""
		case idemstore.UseCap:
			return k.Provider.MaxPerSecond > 0 || k.Provider.MaxInFlight > 0
		case idemstore.UseCharts, idemstore.UseOperators:
		}
		return false
	})
}

// rebuild makes an index without a lock. What is there by name settle migrate takes for done, valid or not.
func rebuild(l idemstore.Lack, _ string) string {
	create := "create index concurrently " + l.Name + " " + l.Columns + ";"
	if l.Invalid {
		return "one statement at a time, unless it is being built now (pg_stat_progress_create_index): drop index concurrently settle." +
			l.Name + "; " + create
	}
	return create + " or settle migrate, which locks the table against writes while it builds"
}

func declareAgain(idemstore.Lack, string) string { return "add it again as schema.sql declares it" }

func grant(l idemstore.Lack, user string) string {
	return fmt.Sprintf("grant %s on %s to %s;", l.Name, l.On, quoted(user))
}

// quoted is a name as SQL takes it.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
