package settle_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	updateLicences = flag.Bool("update-licences", false, "write docs/licences.md, and the texts to bin/licences")
	imageLicences  = flag.String("image-licences", "", "write the texts of what is in the image to this folder")
)

const licencesPage = "docs/licences.md"

// allowed are the licences under which a part of the program may stand.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0"}

// A licence is known by words that no other has.
var licences = map[string]*regexp.Regexp{
	"Apache-2.0": regexp.MustCompile(`Apache License,? Version 2\.0`),
	"MIT":        regexp.MustCompile(`Permission is hereby granted, free of charge, to any person obtaining a copy`),
	"ISC":        regexp.MustCompile(`Permission to use, copy, modify, and(/or)? distribute this software for any purpose with or without fee`),
	"MPL-2.0":    regexp.MustCompile(`Mozilla Public License,? [Vv]ersion 2\.0`),
	// The text itself; the MPL only names it.
	"GPL":  regexp.MustCompile(`GNU (LESSER |AFFERO )?GENERAL PUBLIC LICENSE Version`),
	"SSPL": regexp.MustCompile(`Server Side Public License`),
	"BUSL": regexp.MustCompile(`Business Source License`),
}

var (
	bsd      = regexp.MustCompile(`Redistributions of source code must retain`)
	thirdBSD = regexp.MustCompile(`used to endorse or promote products`)
)

// licencesIn finds the licences of a text, sorted.
func licencesIn(text string) (found []string) {
	text = strings.Join(strings.Fields(text), " ")
	for name, words := range licences {
		if words.MatchString(text) {
			found = append(found, name)
		}
	}
	switch {
	case bsd.MatchString(text) && thirdBSD.MatchString(text):
		found = append(found, "BSD-3-Clause")
	case bsd.MatchString(text):
		found = append(found, "BSD-2-Clause")
	}
	slices.Sort(found)
	return found
}

// dependency is a module that the program is built of.
type dependency struct {
	path, version, dir string
	texts              map[string]bool // files with licences, below dir
	inImage            bool
}

// builds are what is shipped: the program of the image, and the one with the demo, the labs and their broker.
var builds = []struct {
	arch, tags string
	isImage    bool
}{{"amd64", "nodemo", true}, {"arm64", "nodemo", true}, {"amd64", "", false}, {"arm64", "", false}}

func dependencies(t *testing.T) map[string]*dependency {
	t.Helper()
	found := map[string]*dependency{}
	for _, b := range builds {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", b.tags, "-json=Dir,Module", "./cmd/settle")
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+b.arch, "CGO_ENABLED=0")
		list.Stderr = t.Output()
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for packages := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p struct {
				Dir    string
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := packages.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Module == nil || p.Module.Main {
				continue
			}
			d := found[p.Module.Path]
			if d == nil {
				d = &dependency{path: p.Module.Path, version: p.Module.Version, dir: p.Module.Dir, texts: map[string]bool{}}
				found[d.path] = d
			}
			d.inImage = d.inImage || b.isImage
			d.findTexts(t, p.Dir)
		}
	}
	return found
}

var textName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([.-].*)?$`)

// findTexts adds those of a package's folder and of the ones above it: a copied package may bring its own.
func (d *dependency) findTexts(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, d.dir); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if textName.MatchString(e.Name()) && !e.IsDir() && !strings.HasSuffix(e.Name(), ".go") {
				name, _ := filepath.Rel(d.dir, filepath.Join(dir, e.Name()))
				d.texts[name] = true
			}
		}
	}
}

// licences of a module are those of all its texts. A NOTICE is no licence, and is passed on with it.
func (d *dependency) licences(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	for name := range d.texts {
		if strings.HasPrefix(strings.ToLower(filepath.Base(name)), "notice") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(d.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		names := licencesIn(string(text))
		if len(names) == 0 {
			t.Errorf("%s: no licence is known by the text of %s", d.path, name)
		}
		for _, n := range names {
			found[n] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

const licencesHead = `# Licences

Settle itself stands under the [Apache licence 2.0](../LICENSE). These modules are part of the program as it is built for Linux, beside
Go's standard library (BSD-3-Clause). The image is built without the demo, the labs and their broker, and so without some of them.

` + "`make licences`" + ` writes this page and puts the texts into ` + "`bin/licences`" + `: whoever passes the program on passes them on, too. The image has those of
its own modules in ` + "`/licences`" + `. A test compares the page with what is built, and accepts nothing but MIT, BSD, Apache-2.0, ISC and MPL-2.0.

| module | version | licence | in the image |
|---|---|---|---|
`

// What the program is built of stands on the page, under licences that allow it.
func TestTheLicencesOfTheProgram(t *testing.T) {
	modules := dependencies(t)
	var page strings.Builder
	page.WriteString(licencesHead)
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		d := modules[path]
		names := d.licences(t)
		if len(names) == 0 {
			t.Errorf("%s comes without a licence", path)
		}
		for _, name := range names {
			if !slices.Contains(allowed, name) {
				t.Errorf("%s stands under %s, which is not allowed here", path, name)
			}
		}
		image := ""
		if d.inImage {
			image = "yes"
		}
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", path, d.version, strings.Join(names, ", "), image)
	}
	if *updateLicences {
		updateEverything(t, page.String(), modules)
	}
	if *imageLicences != "" {
		collect(t, *imageLicences, modules, func(d *dependency) bool { return d.inImage })
	}
	text, err := os.ReadFile(licencesPage)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != page.String() {
		t.Errorf("%s is not what is built: run make licences, and look at what changed", licencesPage)
	}
}

func updateEverything(t *testing.T, page string, modules map[string]*dependency) {
	t.Helper()
	err := os.WriteFile(licencesPage, []byte(page), 0o644) //nolint:gosec // a page of the documentation
	if err := errors.Join(err, os.RemoveAll("bin/licences")); err != nil {
		t.Fatal(err)
	}
	collect(t, "bin/licences", modules, func(*dependency) bool { return true })
}

// collect puts the texts of some modules into a folder, each under its module's path, with those of Settle and of Go beside them.
func collect(t *testing.T, into string, modules map[string]*dependency, wanted func(*dependency) bool) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	copyText(t, "LICENSE", filepath.Join(into, "LICENSE"))
	copyText(t, filepath.Join(strings.TrimSpace(string(root)), "LICENSE"), filepath.Join(into, "go", "LICENSE"))
	for _, d := range modules {
		for name := range d.texts {
			if wanted(d) {
				copyText(t, filepath.Join(d.dir, name), filepath.Join(into, filepath.FromSlash(d.path), name))
			}
		}
	}
}

func copyText(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // for everybody to read
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o644); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
}

func TestLicencesAreToldApart(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Permission is hereby granted,\nfree of charge, to any person obtaining a copy":           "[MIT]",
		"Redistributions of source code must retain …":                                            "[BSD-2-Clause]",
		"Redistributions of source code must retain … may be used to endorse or promote products": "[BSD-3-Clause]",
		"   Apache License\n   Version 2.0, January 2004":                                         "[Apache-2.0]",
		"Mozilla Public License Version 2.0 … GNU General Public License, Version 2.0":            "[MPL-2.0]",
		"GNU AFFERO GENERAL PUBLIC LICENSE\n  Version 3":                                          "[GPL]",
		"Business Source License 1.1":                                                             "[BUSL]",
		"You may do whatever you like":                                                            "[]",
	} {
		if got := fmt.Sprint(licencesIn(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
