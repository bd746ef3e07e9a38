package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/deploy"
)

var (
	// All parts of a version, so that no later build has the same name. Whoever looked up the digest adds it.
	exactImage = regexp.MustCompile(`^[a-z0-9./-]+:v?\d+\.\d+\.\d+(-[a-z0-9]+)?(@sha256:[0-9a-f]{64})?$`)
	// PostgreSQL's versions have two parts.
	exactPostgres = regexp.MustCompile(`^postgres:\d\d\.\d+(-[a-z0-9]+)?(@sha256:[0-9a-f]{64})?$`)
)

// isOneVersion reports whether an image is named by a version that does not move: not latest, not 2, not 2.15.
func isOneVersion(image string) bool {
	return exactImage.MatchString(image) || exactPostgres.MatchString(image)
}

func TestVersionsThatMoveAreToldFromThoseThatDoNot(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for image, want := range map[string]bool{
		"nats:2.15.2-alpine": true, "prom/prometheus:v3.7.3": true, "postgres:17.6-alpine": true, "nats:2.15.2" + digest: true,
		"postgres:17.6" + digest: true,
		"nats":                   false, "nats:latest": false, "nats:2-alpine": false, "nats:2.15-alpine": false, "postgres:17-alpine": false,
		"nats:alpine": false, "nats:2.15.2@sha256:0a": false, "nats" + digest: false,
	} {
		if got := isOneVersion(image); got != want {
			t.Errorf("%s: %v, want %v", image, got, want)
		}
	}
}

// Without their comment signs, the lines of the production overlay give every pod the image of the digest.
func TestTheOverlayPinsTheImageByItsDigest(t *testing.T) {
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(deploy.Root(), "deploy", "kubernetes"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "production", "kustomization.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^#images:\n(#.*\n)+`).FindString(string(text))
	digest := strings.Repeat("0a", 32)
	active := strings.Replace(strings.ReplaceAll(lines, "#", ""), "sha256:DIGEST", "sha256:"+digest, 1)
	pinned := strings.Replace(string(text), lines, active, 1)
	if err := os.WriteFile(file, []byte(pinned), 0o600); err != nil {
		t.Fatal(err)
	}
	workloads := buildFolder(t, filepath.Join(folder, "production")).workloads()
	if len(workloads) != 5 {
		t.Errorf("%d workloads", len(workloads))
	}
	for _, w := range workloads {
		if want := "registry.example/settle:0.1.0@sha256:" + digest; w.container().Image != want {
			t.Errorf("%s runs %s, want %s", w.name, w.container().Image, want)
		}
	}
}
