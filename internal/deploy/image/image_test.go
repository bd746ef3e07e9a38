package image

import (
	"debug/buildinfo"
	"debug/elf"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/deploy"
)

// What the image is run on.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

func TestTheProgramIsStaticForBothMachinesAndHasNoBroker(t *testing.T) {
	for arch, machine := range machines {
		t.Run(arch, func(t *testing.T) {
			binary, err := deploy.Build(t.TempDir(), arch)
			if err != nil {
				t.Fatal(err)
			}
			isStatic(t, binary, machine)
			info, err := buildinfo.ReadFile(binary) // what go version -m shows
			if err != nil {
				t.Fatal(err)
			}
			for _, module := range info.Deps {
				if strings.HasPrefix(module.Path, "github.com/nats-io/nats-server") {
					t.Errorf("the program has %s in it", module.Path)
				}
			}
			settings := map[string]string{}
			for _, s := range info.Settings {
				settings[s.Key] = s.Value
			}
			for key, want := range map[string]string{"-tags": "nodemo", "CGO_ENABLED": "0", "-trimpath": "true", "GOARCH": arch, "GOOS": "linux"} {
				if settings[key] != want {
					t.Errorf("built with %s=%q, want %q", key, settings[key], want)
				}
			}
			if arch == runtime.GOARCH {
				saysWhatItIs(t, binary)
			}
		})
	}
}

// isStatic: a program that asks for a loader or a library does not start in an image that has none.
func isStatic(t *testing.T, binary string, machine elf.Machine) {
	t.Helper()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Machine != machine {
		t.Errorf("built for %v, want %v", file.Machine, machine)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("it is linked dynamically: it has a segment %v", p.Type)
		}
	}
}

// saysWhatItIs: what is linked in is what the labels say.
func saysWhatItIs(t *testing.T, binary string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "settle "+deploy.Version+" ("+deploy.Revision) {
		t.Errorf("version: %v, %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "demo").CombinedOutput(); err == nil {
		t.Errorf("the image can run the demo: %s", out)
	}
}

// dockerfile is each instruction in its order.
func dockerfile(t *testing.T) (instructions [][2]string) {
	t.Helper()
	text, err := deploy.Dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		instructions = append(instructions, [2]string{name, strings.TrimSpace(rest)})
	}
	return instructions
}

var (
	// A version with all its parts, and its digest where somebody has looked that up.
	pinned = regexp.MustCompile(`^(--platform=\$BUILDPLATFORM )?[a-z0-9./-]+:\d+\.\d+\.\d+-[a-z0-9]+(@sha256:[0-9a-f]{64})? AS build$`)
	number = regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`)
)

func TestTheImageHasTheProgramTheAuthoritiesAndNothingElse(t *testing.T) {
	all := dockerfile(t)
	var last [][2]string
	for _, in := range all {
		switch name, rest := in[0], in[1]; name {
		case "FROM":
			last = nil
			if rest != "scratch" && !pinned.MatchString(rest) {
				t.Errorf("FROM %s is not one version", rest)
			}
		case "ADD":
			t.Errorf("ADD %s: it may fetch and unpack", rest)
		}
		last = append(last, in)
	}
	if last[0][1] != "scratch" {
		t.Errorf("the image is made from %s, which has more in it", last[0][1])
	}
	found := map[string][]string{}
	for _, in := range last {
		found[in[0]] = append(found[in[0]], in[1])
	}
	for name, want := range map[string]string{
		"COPY": "--from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt\n" +
			"--from=build /out/licences /licences\n--from=build /out/settle /settle",
		"ENTRYPOINT": `["/settle"]`, "CMD": `["work"]`, "RUN": "", "STOPSIGNAL": "SIGTERM", "VOLUME": "", "ENV": "",
	} {
		if got := strings.Join(found[name], "\n"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if user := found["USER"]; len(user) != 1 || !number.MatchString(user[0]) {
		t.Errorf("USER is %q, want one number that is not 0", user)
	}
	for _, label := range []string{"org.opencontainers.image.version=$VERSION", "org.opencontainers.image.revision=$REVISION"} {
		if !strings.Contains(strings.Join(found["LABEL"], " "), label) {
			t.Errorf("there is no label %s", label)
		}
	}
}

// The release of Go that builds the image is the one that the tests run with.
func TestTheImageIsBuiltWithTheGoOfTheTests(t *testing.T) {
	text, err := deploy.Dockerfile()
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`golang:(\d+\.\d+)\.\d+-`).FindStringSubmatch(text)
	if len(m) == 0 || !strings.HasPrefix(runtime.Version(), "go"+m[1]+".") {
		t.Errorf("the image is built with Go %q, the tests run with %s", m, runtime.Version())
	}
}
