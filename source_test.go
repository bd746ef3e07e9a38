package settle_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tree is what the rules look at.
type tree struct {
	files  []source
	tables *regexp.Regexp // the names of the engine's tables, out of schema.sql
}

// source is one non-test file.
type source struct {
	path, pkg string // from the root of the module, with slashes
	set       *token.FileSet
	*ast.File
}

// load parses the module's non-test files. Modules of their own below it, and folders that the go command
// ignores, are left out.
func load(t *testing.T, root fs.FS) tree {
	t.Helper()
	var code tree
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && foreign(root, name):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		s := source{path: name, pkg: path.Dir(name), set: token.NewFileSet()}
		s.File, err = parser.ParseFile(s.set, name, text, parser.ParseComments|parser.SkipObjectResolution)
		code.files = append(code.files, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := fs.ReadFile(root, "schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`create table if not exists settle\.(\w+)`).FindAllSubmatch(schema, -1) {
		names = append(names, string(m[1]))
	}
	code.tables = regexp.MustCompile(`(?i)\bsettle\.(` + strings.Join(names, "|") + `)\b`)
	return code
}

func foreign(root fs.FS, dir string) bool {
	base := path.Base(dir)
	_, err := fs.Stat(root, dir+"/go.mod")
	return err == nil || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")
}

// at says where something is and what is wrong with it.
func (s source) at(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: ", s.path, s.set.Position(n.Pos()).Line) + fmt.Sprintf(format, args...)
}

// isApparatus also covers packages below one that is listed.
func (s source) isApparatus() bool {
	return slices.ContainsFunc(apparatus, func(dir string) bool { return s.pkg == dir || strings.HasPrefix(s.pkg, dir+"/") })
}

// names calls found for each use of one of names, called or passed on, that is selected from the package path,
// or from anything if path is empty.
func (s source) uses(pkg string, names []string, found func(ast.Node, string)) {
	local := ""
	for _, spec := range s.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); pkg != "" && p == pkg {
			local = path.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(p, ""))
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, sel.Sel.Name) {
			return true
		}
		if from, ok := sel.X.(*ast.Ident); pkg == "" || ok && local != "" && from.Name == local {
			found(sel, sel.Sel.Name)
		}
		return true
	})
}

// literals calls found for each string literal.
func (s source) literals(found func(*ast.BasicLit, string)) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			found(lit, text)
		}
		return true
	})
}

func matches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		below, tree := strings.CutSuffix(pattern, "/...")
		return p == pattern || tree && (p == below || strings.HasPrefix(p, below+"/"))
	})
}

func begins(doc *ast.CommentGroup, name string) bool {
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	return regexp.MustCompile(`^` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
}

// asks says whether a method needs a comment: its type is exported and it is not one that everybody knows.
func asks(f *ast.FuncDecl) bool {
	known := []string{"Error", "String", "Unwrap"}
	return ast.IsExported(receiver(f)) && (f.Doc != nil || !slices.Contains(known, f.Name.Name))
}

// receiver is the name of a method's type.
func receiver(f *ast.FuncDecl) string {
	name := ""
	ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}
