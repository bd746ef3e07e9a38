// Package deploy checks what stands in the folder deploy, without containers and clusters: it builds the program as the
// image does, gives real servers the rights that are written there, and reads manifests with the types of those who will.
//
//	rights     each role of Postgres and each user of NATS does its job, and is refused beyond it
//	image      the program of the image: static, without an embedded broker, and gone in time
//	manifests  Kubernetes and Compose, decoded strictly and compared with what the program knows
//
// It is a module of its own, because it needs the types of Kubernetes, of Compose and of others.
package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// BeyondDrain is how long a worker takes at most to end after its drain time is over: to cut short what does not end (19 s:
// a pull, a handler's last second twice, a save, an ack), to publish and tell what is left (3 s), and to send its telemetry
// (3 s). Whoever kills it earlier loses nothing; jobs that are cut come again, and are asked about.
const BeyondDrain = 25 * time.Second

// Root is the root of the repository.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Dockerfile is the text of the image's Dockerfile, with lines that go on joined.
func Dockerfile() (string, error) {
	text, err := os.ReadFile(filepath.Join(Root(), "deploy", "Dockerfile"))
	return strings.ReplaceAll(string(text), "\\\n", " "), err
}

// The version and the commit that Build links in.
const (
	Version  = "1.2.3-test"
	Revision = "0123456789abcdef0123456789abcdef01234567"
)

// Build builds the program into a folder as the Dockerfile does, by the command that stands there, for Linux on an
// architecture as Go calls it. It returns the program's path.
func Build(dir, arch string) (string, error) {
	binary := filepath.Join(dir, "settle-"+arch)
	err := runLine("go build", "/out/settle", binary, "TARGETOS=linux", "TARGETARCH="+arch, "VERSION="+Version, "REVISION="+Revision)
	if err != nil {
		return "", fmt.Errorf("build for %s: %w", arch, err)
	}
	return binary, nil
}

// Licences collects the licences of the image into a folder as the Dockerfile does, by the command that stands there.
func Licences(dir string) error {
	if err := runLine("go test", "/out/licences", dir); err != nil {
		return fmt.Errorf("collect licences: %w", err)
	}
	return nil
}

// runLine runs the one RUN line that has a command, with another place for what it makes.
func runLine(command, makes, instead string, env ...string) error {
	text, err := Dockerfile()
	if err != nil {
		return err
	}
	lines := regexp.MustCompile(`(?m)^RUN (.*\b`+command+`\b.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) != 1 || strings.Count(lines[0][1], makes) != 1 {
		return fmt.Errorf("deploy/Dockerfile has not exactly one line %q that makes %s", command, makes)
	}
	run := exec.CommandContext(context.Background(), "sh", "-c", strings.Replace(lines[0][1], makes, "'"+instead+"'", 1))
	run.Dir, run.Env = Root(), append(os.Environ(), env...)
	if out, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}
