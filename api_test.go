package settle_test

import (
	"flag"
	"go/ast"
	"go/doc/comment"
	"go/token"
	"go/types"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// docs/api.txt lists every exported name that people outside the repository can use, so that a new, a changed or a
// lost one is a line in a diff that somebody has decided on.

const apiFile = "docs/api.txt"

var updateAPI = flag.Bool("update-api", false, "write "+apiFile)

const apiHead = `The public names of Settle, written by make api. What is marked with ~ serves the engine and Settle's own commands, and
may change in any release; the rest follows Semantic Versioning.
`

func TestPublicNames(t *testing.T) {
	got := apiHead + "\n" + strings.Join(apiLines(load(t, os.DirFS("."))), "\n") + "\n"
	if *updateAPI {
		if err := os.WriteFile(apiFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(apiFile)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	before, after := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range without(before, after) {
		t.Error("- " + line)
	}
	for _, line := range without(after, before) {
		t.Error("+ " + line)
	}
	t.Error("the public names have changed: if that is meant, run make api, and tell users in CHANGELOG.md")
}

// A promise that needs a name which is not promised is none.
func TestPromisesAreWhole(t *testing.T) {
	for _, broken := range apiGaps(load(t, os.DirFS("."))) {
		t.Error(broken)
	}
}

func TestPublicNamesAreSeen(t *testing.T) {
	code := load(t, fstest.MapFS{
		"schema.sql": {Data: []byte("create table if not exists settle.tasks ();")},
		"idemstore/a.go": {Data: []byte(`// Package idemstore is here.
//
// # What is promised
//
// The type [Row] and [Row.Get].
package idemstore

type Row struct {
	ID int64 ` + "`json:\"id\"`" + `
	Other
	hidden int
}
type Other string
type row int
func (r *Row) Get(a, b int) (n int, err error) { return }
func (*Row) Put() {}
func (*row) Lost() {}
`)},
		"consumer/a.go": {Data: []byte(`package consumer

import "github.com/settlemq/settle/idemstore"

const (
	One, Two Word = iota, 7
	Three, four
)
const Text Word = "text"
var ErrLost = idemstore.ErrLost
type Word int
type Same = idemstore.Other
type Sealed[J any] interface { Word; Call(J); seal() }
func Do[J any](f func(J) error, more ...Word) {}
`)},
	})
	const want = `package github.com/settlemq/settle/consumer
const One Word
const Text Word = "text"
const Three Word
const Two Word
func Do[J any](f func(J) error, more ...Word)
method Sealed.Call(J)
type Same = idemstore.Other
type Sealed[J any] interface, sealed, Word
type Word int
var ErrLost

package github.com/settlemq/settle/idemstore
field Row.ID int64 ` + "`json:\"id\"`" + `
field Row.Other
method (*Row) Get(a, b int) (n int, err error)
type Row struct
~ method (*Row) Put()
~ type Other string
`
	if got := strings.Join(apiLines(code), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	gaps := []string{"consumer: ErrLost needs idemstore.ErrLost, which is not promised", "consumer: Same needs idemstore.Other, which is not promised",
		"idemstore: Row.Other needs idemstore.Other, which is not promised"}
	if got := apiGaps(code); !slices.Equal(got, gaps) {
		t.Errorf("gaps are %q, want %q", got, gaps)
	}
}

// name is one exported name: the line that tells it, and the type expressions that it needs.
type name struct {
	id    string // Row, Row.Get
	line  string
	needs []ast.Expr
}

// apiLines is a section for each public package: what is promised, and then what is not.
func apiLines(code tree) (lines []string) {
	for _, pkg := range publicPackages(code) {
		names, promised := namesOf(code, pkg), promiseOf(code, pkg)
		var kept, open []string
		for _, n := range names {
			if promised(n.id) {
				kept = append(kept, n.line)
			} else {
				open = append(open, "~ "+n.line)
			}
		}
		slices.Sort(kept)
		slices.Sort(open)
		lines = slices.Concat(lines, []string{"package " + path.Join(module, pkg)}, kept, open, []string{""})
	}
	return lines
}

// apiGaps are the names that a promise needs and that are not promised.
func apiGaps(code tree) (gaps []string) {
	promises := map[string]func(string) bool{}
	for _, pkg := range publicPackages(code) {
		promises[pkg] = promiseOf(code, pkg)
	}
	for pkg, promised := range promises {
		for _, n := range namesOf(code, pkg) {
			if !promised(n.id) {
				continue
			}
			for _, needed := range n.needs {
				gaps = append(gaps, gapsIn(needed, pkg, n.id, promises)...)
			}
		}
	}
	slices.Sort(gaps)
	return slices.Compact(gaps)
}

func gapsIn(needed ast.Expr, pkg, id string, promises map[string]func(string) bool) (gaps []string) {
	need := func(from, name string) {
		if promised := promises[from]; promised != nil && ast.IsExported(name) && !promised(name) {
			gaps = append(gaps, pkg+": "+strings.ReplaceAll(id, "#", ".")+" needs "+from+"."+name+", which is not promised")
		}
	}
	ast.Inspect(needed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if from, ok := n.X.(*ast.Ident); ok {
				need(from.Name, n.Sel.Name)
			}
			return false
		case *ast.Field:
			ast.Inspect(n.Type, func(n ast.Node) bool {
				if e, ok := n.(ast.Expr); ok {
					gaps = append(gaps, gapsIn(e, pkg, id, promises)...)
					return false
				}
				return true
			})
			return false // its name is none of a type
		case *ast.Ident:
			need(pkg, n.Name)
		}
		return true
	})
	return gaps
}

func publicPackages(code tree) (pkgs []string) {
	for _, s := range code.files {
		if (s.pkg == "." || slices.Contains(documented, s.pkg)) && !slices.Contains(pkgs, s.pkg) {
			pkgs = append(pkgs, s.pkg)
		}
	}
	slices.Sort(pkgs)
	return pkgs
}

// promiseOf tells which names of a package are promised: those that its comment links below this heading, or all.
func promiseOf(code tree, pkg string) func(id string) bool {
	const heading = "What is promised"
	for _, s := range code.files {
		if s.pkg != pkg || !strings.Contains(s.Doc.Text(), "\n# "+heading+"\n") {
			continue
		}
		everything := comment.Parser{LookupSym: func(string, string) bool { return true }}
		linked, inside := map[string]bool{}, false
		for _, block := range everything.Parse(s.Doc.Text()).Content {
			switch block := block.(type) {
			case *comment.Heading:
				inside = slices.Equal(block.Text, []comment.Text{comment.Plain(heading)})
			case *comment.Paragraph:
				for _, text := range block.Text {
					if link, ok := text.(*comment.DocLink); ok && inside {
						linked[strings.TrimPrefix(link.Recv+"."+link.Name, ".")] = true
					}
				}
			}
		}
		return func(id string) bool {
			owner, field, _ := strings.Cut(id, "#") // the fields of a struct go with it
			return linked[id] || field != "" && linked[owner]
		}
	}
	return func(string) bool { return true }
}

func namesOf(code tree, pkg string) (names []name) {
	for _, s := range code.files {
		if s.pkg != pkg {
			continue
		}
		for _, d := range s.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names = append(names, namesOfFunc(d)...)
			case *ast.GenDecl:
				var given ast.Expr // the type of a group of constants, which the later ones repeat
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						given = typeOr(spec, given)
						names = append(names, namesOfValues(d.Tok, spec, given)...)
					case *ast.TypeSpec:
						names = append(names, namesOfType(spec)...)
					}
				}
			}
		}
	}
	return slices.DeleteFunc(names, func(n name) bool {
		return slices.ContainsFunc(strings.FieldsFunc(n.id, func(r rune) bool { return r == '.' || r == '#' }),
			func(part string) bool { return !ast.IsExported(part) })
	})
}

func typeOr(spec *ast.ValueSpec, before ast.Expr) ast.Expr {
	if spec.Type != nil || len(spec.Values) > 0 {
		return spec.Type
	}
	return before
}

func namesOfFunc(f *ast.FuncDecl) []name {
	signature := strings.TrimPrefix(types.ExprString(f.Type), "func")
	n := name{id: f.Name.Name, needs: []ast.Expr{f.Type}}
	if f.Recv == nil {
		n.line = "func " + n.id + parameters(f.Type.TypeParams) + signature
		return []name{n}
	}
	n.id = receiver(f) + "." + n.id
	n.line = "method (" + types.ExprString(f.Recv.List[0].Type) + ") " + f.Name.Name + signature
	return []name{n}
}

// parameters are type parameters with their brackets, where there are any.
func parameters(list *ast.FieldList) string {
	if list == nil {
		return ""
	}
	var each []string
	for _, f := range list.List {
		for _, id := range f.Names {
			each = append(each, id.Name+" "+types.ExprString(f.Type))
		}
	}
	return "[" + strings.Join(each, ", ") + "]"
}

func namesOfValues(tok token.Token, spec *ast.ValueSpec, given ast.Expr) (names []name) {
	for i, id := range spec.Names {
		n := name{id: id.Name, line: tok.String() + " " + id.Name}
		if given != nil {
			n.line += " " + types.ExprString(given)
			n.needs = append(n.needs, given)
		}
		if i < len(spec.Values) {
			switch v := spec.Values[i].(type) {
			case *ast.BasicLit:
				if v.Kind == token.STRING { // what is stored, or printed as JSON
					n.line += " = " + v.Value
				}
			case *ast.SelectorExpr:
				n.needs = append(n.needs, v)
			}
		}
		names = append(names, n)
	}
	return names
}

func namesOfType(spec *ast.TypeSpec) []name {
	n := name{id: spec.Name.Name, line: "type " + spec.Name.Name + parameters(spec.TypeParams)}
	switch of := spec.Type.(type) {
	case *ast.StructType:
		n.line += " struct"
		return append([]name{n}, fieldsOf(n.id, of)...)
	case *ast.InterfaceType:
		n.line += " interface"
		methods := methodsOf(n.id, of)
		if len(methods) < of.Methods.NumFields() {
			n.line += ", sealed"
		}
		for _, f := range of.Methods.List {
			if len(f.Names) == 0 {
				n.line += ", " + types.ExprString(f.Type)
			}
		}
		return append([]name{n}, methods...)
	default:
		if spec.Assign.IsValid() {
			n.line += " ="
		}
		n.line += " " + types.ExprString(of)
		n.needs = []ast.Expr{of}
		return []name{n}
	}
}

// fieldsOf are the fields of a struct, with the tags by which they are printed.
func fieldsOf(owner string, of *ast.StructType) (names []name) {
	for _, f := range of.Fields.List {
		tag := ""
		if f.Tag != nil {
			tag = " " + f.Tag.Value
		}
		for _, id := range f.Names {
			names = append(names, name{id: owner + "#" + id.Name, line: "field " + owner + "." + id.Name + " " + types.ExprString(f.Type) + tag, needs: []ast.Expr{f.Type}})
		}
		if len(f.Names) == 0 {
			embedded := types.ExprString(f.Type)
			names = append(names, name{id: owner + "#" + strings.TrimPrefix(path.Ext("."+embedded), "."), line: "field " + owner + "." + embedded + tag, needs: []ast.Expr{f.Type}})
		}
	}
	return names
}

// methodsOf are the exported methods of an interface.
func methodsOf(owner string, of *ast.InterfaceType) (names []name) {
	for _, f := range of.Methods.List {
		for _, id := range f.Names {
			if id.IsExported() {
				signature := strings.TrimPrefix(types.ExprString(f.Type), "func")
				names = append(names, name{id: owner + "#" + id.Name, line: "method " + owner + "." + id.Name + signature, needs: []ast.Expr{f.Type}})
			}
		}
	}
	return names
}

// without are the lines of a that b does not have.
func without(a, b []string) (left []string) {
	for _, line := range a {
		if !slices.Contains(b, line) {
			left = append(left, strconv.Quote(line))
		}
	}
	return left
}
