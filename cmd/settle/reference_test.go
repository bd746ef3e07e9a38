package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

const referencePath = "../../docs/configuration.md"

// update is go test ./cmd/settle -run TestConfigurationReference -args -update: it writes the file instead of comparing.
var update = flag.Bool("update", false, "write docs/configuration.md")

// The reference is what the flags say. It cannot be edited by hand: nobody would notice what is missing.
func TestConfigurationReference(t *testing.T) {
	t.Parallel()
	want := reference(root())
	if *update {
		if err := os.WriteFile(referencePath, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/configuration.md is not what the flags say; run: make docs\n%s", firstDifference(string(got), want))
	}
}

func firstDifference(got, want string) string {
	is, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(is), len(should)) {
		if is[i] != should[i] {
			return fmt.Sprintf("line %d is     %s\nline %d should %s", i+1, is[i], i+1, should[i])
		}
	}
	return "one is the beginning of the other"
}

// Whoever looks for a variable finds it, and what the program reads without a flag too.
func TestTheReferenceKnowsEveryVariable(t *testing.T) {
	t.Parallel()
	text := reference(root())
	for variable, value := range documented {
		row := regexp.MustCompile("(?m)^\\| `" + variable + "`[^|]*\\|.*\\| `work`.*$").FindString(text)
		if row == "" || value != "" && !strings.Contains(row, strings.Trim(value, `"`)) {
			t.Errorf("%s is not there with work and its default %s: %s", variable, value, row)
		}
	}
	for _, file := range []string{"exporter.go", "metricsexporter.go", "metrics.go", "sampler.go", "telemetry.go"} {
		code, err := os.ReadFile("../../internal/telemetry/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`Getenv\("(OTEL_[A-Z_]+)"\)`).FindAllSubmatch(code, -1) {
			if !strings.Contains(text, "`"+string(name[1])+"`") {
				t.Errorf("%s reads %s", file, name[1])
			}
		}
	}
}

// setting is a flag, or several of one name that say the same, with the commands that take it.
type setting struct {
	flag, placeholder, variable, value, usage string
	commands                                  []string
}

// settingsOf walks the commands in the order of --help.
func settingsOf(cmd *cli.Command, name string, found *[]*setting) {
	for _, f := range cmd.Flags {
		s := settingOf(f)
		i := slices.IndexFunc(*found, func(o *setting) bool {
			return o.flag == s.flag && o.variable == s.variable && o.value == s.value && o.usage == s.usage
		})
		if i < 0 {
			i, *found = len(*found), append(*found, &s)
		}
		(*found)[i].commands = append((*found)[i].commands, name)
	}
	for _, sub := range cmd.Commands {
		if sub.Hidden {
			continue
		}
		settingsOf(sub, strings.TrimSpace(name+" "+sub.Name), found)
	}
}

var placeholder = regexp.MustCompile("`([^`]+)`")

func settingOf(f cli.Flag) setting {
	doc := f.(cli.DocGenerationFlag)
	s := setting{flag: "--" + f.Names()[0], usage: doc.GetUsage(), value: doc.GetDefaultText()}
	for _, alias := range f.Names()[1:] {
		s.flag += ", --" + alias
	}
	if s.value == "" && doc.TakesValue() {
		s.value = doc.GetValue()
	}
	if m := placeholder.FindStringSubmatch(s.usage); m != nil {
		s.placeholder = m[1]
	} else if doc.TakesValue() {
		s.placeholder = doc.TypeName()
	}
	if variables := doc.GetEnvVars(); len(variables) > 0 {
		s.variable = strings.Join(variables, "`, `")
	}
	return s
}

// cell makes a text fit for a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.Trim(s, `"`) + "`" // a text's default comes with quotes
}

func (s setting) name() string {
	if s.placeholder == "" {
		return code(s.flag)
	}
	return code(s.flag + " " + s.placeholder)
}

func (s setting) meaning() string { return cell(placeholder.ReplaceAllString(s.usage, "$1")) }

// takers are the commands of a setting, the verbs of one behind its name.
func (s setting) takers() string {
	if slices.Contains(s.commands, "") {
		return "every command"
	}
	var out []string
	for _, name := range s.commands {
		group, verb, isVerb := strings.Cut(name, " ")
		last := len(out) - 1
		switch before := code(group) + " "; {
		case !isVerb:
			out = append(out, code(name))
		case last >= 0 && strings.HasPrefix(out[last], before):
			out[last] += " · " + verb
		default:
			out = append(out, before+verb)
		}
	}
	return strings.Join(out, ", ")
}

// reference is the whole text of docs/configuration.md.
func reference(cmd *cli.Command) string {
	var found []*setting
	settingsOf(cmd, "", &found)
	var b strings.Builder
	b.WriteString(referenceHead)
	b.WriteString("| variable | flag | default | meaning | commands |\n|---|---|---|---|---|\n")
	var withVariable, without []*setting
	for _, s := range found {
		if s.variable != "" {
			withVariable = append(withVariable, s)
		} else {
			without = append(without, s)
		}
	}
	slices.SortStableFunc(withVariable, func(a, b *setting) int { return strings.Compare(a.variable, b.variable) })
	for _, s := range withVariable {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code(s.variable), s.name(), code(s.value), s.meaning(), s.takers())
	}
	b.WriteString(referenceMiddle)
	b.WriteString("| flag | default | meaning | commands |\n|---|---|---|---|\n")
	slices.SortStableFunc(without, func(a, b *setting) int { return strings.Compare(a.flag, b.flag) })
	for _, s := range without {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.name(), code(s.value), s.meaning(), s.takers())
	}
	return b.String()
}

const referenceHead = `# Configuration

<!-- Made of the flags by make docs. Do not edit. -->

Every setting of every command. A flag on the command line goes before its variable, the variable before the kinds file (which holds
limits of single kinds, see [kinds in a file](kinds-file.md)), and that before the default. An empty variable is an unset one. What
cannot be used ends the command with exit code 2 and one line that names flag and variable.

Durations are written as ` + "`500ms`, `30s`, `5m` or `24h`" + `. A flag that may be given several times takes a list with commas from its variable.

**Secrets from files.** A variable that may hold a password or a token has a second one, with _FILE behind its name, that names a file with
the value: ` + "`DATABASE_URL_FILE=/run/secrets/database-url`" + `. The file is read when the command starts; one line end behind the value does not
count. To set both, and a file that cannot be read, is empty or has more than 64 KiB, is wrong use. Neither values nor the names of
these files are shown in logs, errors and help. The kinds file takes secrets from files by ` + "`${file:PATH}`" + `.

## Settings with a variable

`

const referenceMiddle = `
## Variables without a flag

| variable | meaning |
|---|---|
| ` + "`OTEL_SDK_DISABLED`" + ` | true: no traces and no metrics are sent |
| ` + "`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`" + ` | the collector, a URL; unset: nothing is sent |
| ` + "`OTEL_EXPORTER_OTLP_PROTOCOL`, `…_TRACES_PROTOCOL`, `…_METRICS_PROTOCOL`" + ` | grpc (the default) or http/protobuf |
| ` + "`OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_HEADERS_FILE`" + ` | what goes with every request to the collector, usually a token; a file as above |
| ` + "`OTEL_TRACES_EXPORTER`" + ` | none: no traces |
| ` + "`OTEL_METRICS_EXPORTER`" + ` | otlp: metrics are sent, too; /metrics is there in any case |
| ` + "`OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`" + ` | which traces are kept; see also SETTLE_TRACE_KEEP |
| ` + "`OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_BSP_…`, `OTEL_EXPORTER_OTLP_…`" + ` | the others of OpenTelemetry, as its SDK for Go reads them |
| ` + "`PGPASSWORD`, `PGPASSFILE`, `PGSSLROOTCERT` and the others of libpq" + ` | what DATABASE_URL does not say |
| ` + "`LC_ALL`, `LC_MESSAGES`, `LANG`, `NO_COLOR`" + ` | language and colour of settle lab |
| ` + "`GOMEMLIMIT`, `GOMAXPROCS`" + ` | memory and processors, as for every Go program |
| ` + "`GOGC`" + ` | as for every Go program, but for the default: a worker's is 400, so that it collects its garbage less often |

## Flags without a variable

They are for a person at a keyboard.

`
