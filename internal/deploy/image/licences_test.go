package image

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/deploy"
)

var licenceText = regexp.MustCompile(`(?i)^(licen[cs]e|copying)`)

// Whoever gets the image gets the licences of all that is linked into its program, and of nothing else.
func TestTheImageHasTheLicencesOfWhatIsInIt(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	if err := deploy.Licences(folder); err != nil {
		t.Fatal(err)
	}
	there := licensed(t, folder)
	for arch := range machines {
		binary, err := deploy.Build(dir, arch)
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range append(modulesOf(info), ".", "go") {
			if _, found := there[path]; !found {
				t.Errorf("%s: the image has no licence of %s", arch, path)
			}
			there[path] = true
		}
	}
	for path, linked := range there {
		if !linked && !withinOne(there, path) {
			t.Errorf("the image has a licence of %s, which is not in the program", path)
		}
	}
}

func modulesOf(info *buildinfo.BuildInfo) (paths []string) {
	for _, m := range info.Deps {
		paths = append(paths, m.Path)
	}
	return paths
}

// licensed are the folders that hold the text of a licence, by their path below folder.
func licensed(t *testing.T, folder string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(folder, func(name string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && licenceText.MatchString(entry.Name()) {
			path, err := filepath.Rel(folder, filepath.Dir(name))
			if err != nil {
				return err
			}
			found[filepath.ToSlash(path)] = false
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// withinOne reports whether a folder is part of a module that is linked.
func withinOne(linked map[string]bool, path string) bool {
	for module, is := range linked {
		if is && module != "." && strings.HasPrefix(path, module+"/") {
			return true
		}
	}
	return false
}
