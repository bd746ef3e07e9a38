package kindfile

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/settlemq/settle/consumer"
)

// Format is the version of the format that this package reads: "settle: 1".
const Format = 1

// File is a file that can be used.
type File struct {
	Path     string
	Kinds    []*Kind           // in the file's order
	BuiltIn  map[string]Limits // of kinds that come with the program
	Warnings []Problem         // by line
}

// Kind is a declared kind.
type Kind struct {
	Name string
	Line int

	contract   consumer.Contract
	policy     consumer.Policy
	provider   consumer.Provider
	volatile   []string
	maxBody    int
	members    members
	key        keyText
	searchable []named // refs
	order      *order
	base       base
	send       send
	result     *tree
	externalID path
	lookUp     *lookUp
	folder     string // of the file: other files are named from there
}

// base is where a provider is, and what goes with every call.
type base struct {
	url       text
	urlLine   int
	account   string
	keyHeader string
	headers   []named
	timeout   time.Duration
}

// send is the request for the effect.
type send struct {
	call
	answers []rule
	poll    time.Duration
}

// lookUp asks what became of it.
type lookUp struct {
	byKey   call
	byID    *call
	answers []rule
	same    []comparison
	line    int
}

// comparison: what the answer says at path, if it says it, is what the job says.
type comparison struct {
	path path
	text text
}

// order is the order guard: one event of an entity at a time.
type order struct {
	id                 text
	version, updatedAt *ref
}

// Read reads a file. The error is an *InvalidError if the file can be read and not be used.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kinds: %w", err)
	}
	f, problems := Parse(path, text)
	if errs := errorsAmong(problems); len(errs) > 0 {
		return nil, &InvalidError{Path: path, Problems: errs}
	}
	return f, nil
}

// Parse reads a file's text and tells all that is wrong with it or dangerous in it, by line. path is its name. The file
// can be used if none of the problems is more than a warning.
func Parse(path string, text []byte) (*File, []Problem) {
	r := &reader{}
	f := &File{Path: path}
	if root := r.document(text); root != nil {
		r.file(root, f)
	}
	if len(f.Kinds)+len(f.BuiltIn) == 0 && len(errorsAmong(r.problems)) == 0 {
		r.problems = append(r.problems, Problem{Text: "the file declares no kind, and no limits of built-in ones"})
	}
	if len(errorsAmong(r.problems)) == 0 {
		r.checkPrefixes(f)
		r.checkBuiltIn(f)
	}
	sortProblems(r.problems)
	for _, p := range r.problems {
		if p.Warning {
			f.Warnings = append(f.Warnings, p)
		}
	}
	return f, r.problems
}

func (r *reader) file(n *yaml.Node, f *File) {
	var version int
	r.object(n, "file", fields{
		"settle": func(n *yaml.Node) {
			r.countInto(&version, "settle", 1)(n)
			if version != Format && version != 0 {
				r.fail(n, "settle: format %d is not known to this build, which reads %d", version, Format)
			}
		},
		"kinds": func(n *yaml.Node) {
			for _, p := range r.pairs(n, "kinds") {
				f.Kinds = append(f.Kinds, r.declaration(p, filepath.Dir(f.Path)))
			}
		},
		"built_in": func(n *yaml.Node) { r.builtIn(n, f) },
	}, "settle")
}

var kindName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`)

// declaration reads one kind. What the others name, members, is read first, wherever it stands.
func (r *reader) declaration(p pair, folder string) *Kind {
	k := &Kind{Name: p.name.Value, Line: p.name.Line, folder: folder}
	r.kind = k.Name
	defer func() { r.kind = "" }()
	if !kindName.MatchString(k.Name) || len(k.Name) > 64 {
		r.fail(p.name, "a kind is named by at most 64 bytes of lower-case words joined by dots, like payment.charge")
	}
	before := len(r.problems)
	for _, first := range r.peek(p.value, "job") {
		k.members = r.members(first)
	}
	later := map[string]*yaml.Node{}
	keep := func(name string) func(*yaml.Node) { return func(n *yaml.Node) { later[name] = n } }
	r.object(p.value, "kind", fields{
		"contract": func(n *yaml.Node) { r.contract(n, k) },
		"policy":   func(n *yaml.Node) { r.policy(n, &k.policy) },
		"provider": func(n *yaml.Node) { r.providerProfile(n, k) },
		"content":  func(n *yaml.Node) { r.content(n, k) },
		"job":      func(*yaml.Node) {},
		"key":      func(n *yaml.Node) { k.key = r.keyText(n, k.members) },
		"refs":     func(n *yaml.Node) { k.searchable = r.named(n, "refs", k.jobText()) },
		"order":    func(n *yaml.Node) { r.order(n, k) },
		"send":     keep("send"), "look_up": keep("look_up"),
		"result":      func(n *yaml.Node) { k.result = r.tree(n, "result", answerRule) },
		"external_id": func(n *yaml.Node) { k.externalID = r.path(n, r.text(n, "external_id"), "external_id") },
	}, "contract", "job", "key", "provider", "send", "result", "external_id")
	if n := later["send"]; n != nil {
		r.sendCall(n, k)
	}
	if n := later["look_up"]; n != nil {
		r.lookUpCall(n, k)
	}
	if len(errorsAmong(r.problems[before:])) == 0 {
		r.check(k)
	}
	return k
}

// peek finds the value of a name before its mapping is read.
func (r *reader) peek(n *yaml.Node, name string) []*yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name && !isNull(n.Content[i+1]) {
			return n.Content[i+1 : i+2]
		}
	}
	return nil
}
