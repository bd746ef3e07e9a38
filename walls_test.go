package settle_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// The walls between packages, and the rules that keep each thing in its one place. They are about non-test
// files, whatever their build tags. CONTRIBUTING.md says what each wall is for.

const module = "github.com/settlemq/settle"

// own is the path of one of this module's packages.
func own(dir string) string { return module + "/" + dir }

const (
	pgx  = "github.com/jackc/pgx/v5/..."
	nats = "github.com/nats-io/nats.go/..."
)

// tracing is the OpenTelemetry API: names and interfaces, no exporter, no SDK.
var tracing = []string{
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes",
	"go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace",
}

// metering is its part for metrics.
var metering = []string{"go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/metric/noop"}

// mayImport lists, for each package, what it may import beside the standard library. "/..." stands for the
// package and everything below it. A package without a line here fails, and so does a line without a package.
var mayImport = map[string][]string{
	".":         nil,
	"idemstore": {module, pgx, "github.com/sethvargo/go-retry", "github.com/google/uuid"},
	"consumer": slices.Concat(tracing, metering, []string{module, own("idemstore"), nats, "github.com/google/uuid",
		"github.com/sethvargo/go-retry",
		"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn", "github.com/jackc/pgx/v5/pgxpool"}),
	"handlers": {own("consumer"), "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgconn"},
	"cmd/settle": slices.Concat(tracing, []string{module, own("consumer"), own("handlers"), own("idemstore"),
		own("internal/admin"), own("internal/admin/access"), own("internal/bench"), own("internal/build"), own("internal/demo"), own("internal/devenv"), own("internal/doctor"), own("internal/heap"), own("internal/kindbreak"), own("internal/kindfile"), own("internal/lab"), own("internal/notify"),
		own("internal/provider"), own("internal/soak"), own("internal/story"), own("internal/telemetry"), nats, pgx, "github.com/schollz/progressbar/v3",
		"github.com/sethvargo/go-retry", "github.com/urfave/cli/v3", "golang.org/x/term"}),

	"internal/admin/access": {"golang.org/x/crypto/bcrypt"},

	"internal/admin": {own("consumer"), own("idemstore"), own("internal/story"), "github.com/google/uuid"},
	"internal/bench": slices.Concat(metering, []string{own("consumer"), own("idemstore"), own("internal/admin"), own("internal/devenv"),
		own("internal/heap"), own("internal/telemetry"), nats, pgx}),
	"internal/build":  nil,
	"internal/doctor": {own("consumer"), own("idemstore"), nats},
	"internal/demo":   {own("consumer"), own("idemstore"), own("internal/admin/access"), own("internal/devenv"), own("internal/provider"), nats, pgx},
	"internal/devenv": {nats, "github.com/nats-io/nats-server/v2/server", pgx, "github.com/sethvargo/go-retry"},
	"internal/heap":   nil,
	"internal/lab": {own("consumer"), own("handlers"), own("idemstore"), own("internal/devenv"), own("internal/provider"), nats, pgx,
		"github.com/google/uuid"},
	"internal/kindfile":  {own("consumer"), own("handlers"), "go.yaml.in/yaml/v3"},
	"internal/kindbreak": {own("consumer"), own("idemstore"), own("internal/devenv"), own("internal/kindfile"), nats, pgx},
	"internal/soak":      {own("consumer"), own("idemstore"), own("internal/devenv"), own("internal/provider"), nats, pgx},
	"internal/notify":    {own("consumer"), "github.com/nats-io/nats.go", "github.com/sethvargo/go-retry"},
	"internal/provider":  append([]string{pgx}, tracing...),
	"internal/story":     {own("idemstore")},
	"internal/telemetry": {own("internal/build"), "go.opentelemetry.io/otel/...", "go.opentelemetry.io/proto/...",
		"github.com/go-logr/logr", "github.com/prometheus/client_golang/prometheus/...", "github.com/prometheus/otlptranslator"},
}

// apparatus is for tests and measurements: it may import anything, and only tests and apparatus may import it.
var apparatus = []string{"consumer/consumertest", "internal/cases", "internal/devenv/devtest", "internal/rig"}

// clocks lists the files of consumer and idemstore that may read the process's clock, and what for. Leases and
// due times are the database clock's; a worker measures only how long its own things take.
var clocks = map[string]string{
	"consumer/clock.go": "the one place: how much of an AckWait, a lease or a deadline is over",
}

const (
	longestFunction = 70  // lines
	longestFile     = 400 // lines
)

// longFiles lists the files that may be longer, and why.
var longFiles = map[string]string{
	"idemstore/sql.go": "all SQL on the task tables is read in one place",
}

// documented are the packages that people outside the repository read.
var documented = []string{"consumer", "consumer/consumertest", "handlers", "idemstore"}

// rules find what breaks a wall. Each entry of the answer names a place and what is wrong there.
var rules = map[string]func(tree) []string{
	"imports":     imports,
	"acks":        acks,
	"sql":         taskSQL,
	"connections": connections,
	"clock":       clock,
	"size":        size,
	"comments":    comments,
}

func TestWalls(t *testing.T) {
	code := load(t, os.DirFS("."))
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, broken := range rule(code) {
				t.Error(broken)
			}
		})
	}
}

// What a package pulls in through others matters in three places only: who links a library decides about its
// telemetry, a store must be usable without a broker, and an image carries no embedded broker.
func TestDependencies(t *testing.T) {
	for _, c := range []struct {
		packages  string
		tags      string
		forbidden string
	}{
		{"./consumer", "", "go.opentelemetry.io/otel/sdk"},
		{"./handlers/...", "", "go.opentelemetry.io/otel/sdk"},
		{"./idemstore/...", "", "go.opentelemetry.io/otel/sdk"},
		{"./idemstore/...", "", "github.com/nats-io"},
		{"./cmd/settle", "nodemo", "github.com/nats-io/nats-server"},
	} {
		t.Run(c.packages+" without "+path.Base(c.forbidden), func(t *testing.T) {
			t.Parallel()
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", c.tags, c.packages)
			list.Stderr = t.Output()
			out, err := list.Output()
			if err != nil || len(out) == 0 {
				t.Fatalf("go list %s found %d bytes: %v", c.packages, len(out), err)
			}
			for dep := range strings.Lines(string(out)) {
				if strings.HasPrefix(dep, c.forbidden) {
					t.Errorf("%s depends on %s", c.packages, dep)
				}
			}
		})
	}
}

// A wall that notices nothing is none: each file here breaks one rule, once.
func TestWallsNotice(t *testing.T) {
	for _, c := range []struct{ rule, file, code string }{
		{"imports", "consumer/a.go", `import _ "github.com/settlemq/settle/handlers"`},
		{"imports", "consumer/a.go", `import _ "go.opentelemetry.io/otel/sdk/trace"`},
		{"imports", "handlers/a.go", `import _ "github.com/nats-io/nats.go/jetstream"`},
		{"imports", "handlers/a.go", `import _ "github.com/settlemq/settle/idemstore"`},
		{"imports", "idemstore/a.go", `import _ "github.com/settlemq/settle/consumer"`},
		{"imports", "cmd/settle/a.go", `import _ "github.com/settlemq/settle/internal/rig"`},
		{"imports", "internal/helper/a.go", `import _ "os"`},
		{"acks", "consumer/a.go", `func f(m interface{ DoubleAck() error }) error { return m.DoubleAck() }`},
		{"acks", "consumer/a.go", `func f(m interface{ Nak() error }) func() error { return m.Nak }`},
		{"acks", "consumer/a.go", `func f(s interface{ DeleteMsg(uint64) error }) error { return s.DeleteMsg(1) }`},
		{"acks", "handlers/a.go", `var _ = "+ACK"`},
		{"sql", "consumer/a.go", "const q = `update settle.tasks set status = 'finished'`"},
		{"connections", "consumer/a.go", `import p "github.com/jackc/pgx/v5/pgxpool"; var _ = p.NewWithConfig`},
		{"connections", "handlers/a.go", `import "github.com/jackc/pgx/v5"; var _ = pgx.Connect`},
		{"clock", "idemstore/a.go", `import "time"; var _ = time.Now`},
		{"clock", "consumer/a.go", `import "time"; func f(t time.Time) time.Duration { return time.Since(t) }`},
		{"size", "internal/build/a.go", "func f() {" + strings.Repeat("\n", longestFunction) + "}"},
		{"size", "internal/build/a.go", "var x = 1" + strings.Repeat("\n", longestFile)},
		{"comments", "handlers/a.go", "func Charge() {}"},
		{"comments", "handlers/a.go", "// Makes a charge.\nfunc Charge() {}"},
		{"comments", "handlers/a.go", "// Charge is a kind.\ntype Charge int\n\nfunc (*Charge) Name() {}"},
		{"comments", "handlers/a.go", "const (\n\tOne = 1\n)"},
	} {
		t.Run(c.rule+" "+c.code[:min(len(c.code), 60)], func(t *testing.T) {
			files := fstest.MapFS{
				"schema.sql": {Data: []byte("create table if not exists settle.tasks ();")},
				c.file:       {Data: []byte("// Package p is here.\npackage p\n\n" + c.code)},
			}
			for pkg := range mayImport { // the packages that have to exist
				files[path.Join(pkg, "ok.go")] = &fstest.MapFile{Data: []byte("package p")}
			}
			for file := range clocks {
				files[file] = &fstest.MapFile{Data: []byte("package p\n\nimport \"time\"\n\nvar _ = time.Now")}
			}
			for name, rule := range rules {
				found := rule(load(t, files))
				if name == c.rule && len(found) != 1 || name != c.rule && len(found) != 0 {
					t.Errorf("rule %s found %q", name, found)
				}
			}
		})
	}
}

func imports(code tree) (broken []string) {
	seen := map[string]bool{}
	for _, s := range code.files {
		if s.isApparatus() {
			continue
		}
		allowed, listed := mayImport[s.pkg]
		if !listed {
			broken = append(broken, s.path+": package "+s.pkg+" has no line in mayImport")
			continue
		}
		seen[s.pkg] = true
		for _, spec := range s.Imports {
			p, _ := strconv.Unquote(spec.Path.Value)
			if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") && !matches(allowed, p) {
				broken = append(broken, s.at(spec, "%s must not import %s", s.pkg, p))
			}
		}
	}
	for pkg := range mayImport {
		if !seen[pkg] {
			broken = append(broken, "mayImport has a line for "+pkg+", which does not exist")
		}
	}
	return broken
}

// acks: whoever settles a message ends its story, so all of it is in one file that can be read as a whole. Only
// packages that may import the client can hold a message; elsewhere the same words mean something else.
func acks(code tree) (broken []string) {
	const place = "consumer/settle.go"
	elsewhere := []string{
		"internal/demo/rule.go",  // acks first, to show what that breaks
		"internal/bench/loop.go", // the hand-written loop that the engine is measured beside
	}
	methods := []string{"Ack", "DoubleAck", "InProgress", "Nak", "NakWithDelay", "Term", "TermWithReason", "DeleteMsg", "SecureDeleteMsg"}
	for _, s := range code.files {
		if s.path == place || slices.Contains(elsewhere, s.path) || s.isApparatus() {
			continue
		}
		if matches(mayImport[s.pkg], "github.com/nats-io/nats.go") {
			s.uses("", methods, func(n ast.Node, name string) {
				broken = append(broken, s.at(n, "%s is only for %s", name, place))
			})
		}
		s.literals(func(n *ast.BasicLit, text string) {
			if slices.ContainsFunc([]string{"+ACK", "-NAK", "+WPI", "+NXT", "+TERM"}, func(verb string) bool {
				return strings.HasPrefix(text, verb)
			}) {
				broken = append(broken, s.at(n, "protocol word %q is only for %s", text, place))
			}
		})
	}
	return broken
}

// taskSQL: the invariants of the engine's tables are kept by the package that owns all of their SQL.
func taskSQL(code tree) (broken []string) {
	allowed := []string{
		"internal/bench/rows.go",                          // makes thousands of rows at once, and judges by them
		"internal/lab/cleanup.go",                         // removes a key row, to show what that breaks
		"internal/soak/jobs.go", "internal/soak/judge.go", // judge by the rows, not by the store's word
	}
	for _, s := range code.files {
		if s.pkg == "idemstore" || slices.Contains(allowed, s.path) || s.isApparatus() {
			continue
		}
		s.literals(func(n *ast.BasicLit, text string) {
			if table := code.tables.FindString(text); table != "" {
				broken = append(broken, s.at(n, "SQL on %s belongs to idemstore", table))
			}
		})
	}
	return broken
}

// connections: whoever links the libraries owns the pool, its size and its end.
func connections(code tree) (broken []string) {
	makers := map[string][]string{
		"github.com/jackc/pgx/v5":         {"Connect", "ConnectConfig", "ConnectWithOptions"},
		"github.com/jackc/pgx/v5/pgconn":  {"Connect", "ConnectConfig", "ConnectWithOptions"},
		"github.com/jackc/pgx/v5/pgxpool": {"New", "NewWithConfig"},
	}
	for _, s := range code.files {
		if !slices.Contains(documented, s.pkg) || slices.Contains(apparatus, s.pkg) {
			continue
		}
		for pkg, names := range makers {
			s.uses(pkg, names, func(n ast.Node, name string) {
				broken = append(broken, s.at(n, "%s takes its connections from the caller; no %s.%s", s.pkg, path.Base(pkg), name))
			})
		}
	}
	return broken
}

func clock(code tree) (broken []string) {
	used := map[string]bool{}
	for _, s := range code.files {
		if s.pkg != "consumer" && s.pkg != "idemstore" {
			continue
		}
		s.uses("time", []string{"Now", "Since", "Until"}, func(n ast.Node, name string) {
			used[s.path] = true
			if clocks[s.path] == "" {
				broken = append(broken, s.at(n, "time.%s: this file is not in clocks", name))
			}
		})
	}
	for file := range clocks {
		if !used[file] {
			broken = append(broken, "clocks has a line for "+file+", which reads no clock")
		}
	}
	return broken
}

func size(code tree) (broken []string) {
	for _, s := range code.files {
		line := func(p token.Pos) int { return s.set.Position(p).Line }
		if n := line(s.FileEnd); n > longestFile+1 && longFiles[s.path] == "" {
			broken = append(broken, fmt.Sprintf("%s: %d lines, more than %d", s.path, n, longestFile))
		}
		for _, d := range s.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && line(f.End())-line(f.Pos())+1 > longestFunction {
				broken = append(broken, s.at(f, "%s has %d lines, more than %d", f.Name, line(f.End())-line(f.Pos())+1, longestFunction))
			}
		}
	}
	return broken
}

// comments: every exported name has one, and it begins with the name. Methods that the standard library asks for
// need none.
func comments(code tree) (broken []string) {
	for _, s := range code.files {
		if !slices.Contains(documented, s.pkg) {
			continue
		}
		for _, d := range s.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && !begins(d.Doc, d.Name.Name) && (d.Recv == nil || asks(d)) {
					broken = append(broken, s.at(d, "the comment of %s must begin with its name", d.Name))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					broken = append(broken, undocumented(s, d, spec)...)
				}
			}
		}
	}
	return broken
}

// undocumented checks one type, constant or variable. Those of a group may share the comment of the group, or
// have one behind them.
func undocumented(s source, d *ast.GenDecl, spec ast.Spec) (broken []string) {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		doc := spec.Doc
		if doc == nil {
			doc = d.Doc
		}
		if spec.Name.IsExported() && !begins(doc, spec.Name.Name) {
			broken = append(broken, s.at(spec, "the comment of %s must begin with its name", spec.Name))
		}
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			if name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
				broken = append(broken, s.at(spec, "%s has no comment", name))
			}
		}
	}
	return broken
}
