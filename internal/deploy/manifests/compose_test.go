package manifests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"sigs.k8s.io/yaml"

	"github.com/settlemq/settle/internal/deploy"
)

// project is deploy/compose.yaml as the compose command reads it, checked against the schema. envFile may be empty.
func project(t *testing.T, envFile string) *types.Project {
	t.Helper()
	folder := filepath.Join(deploy.Root(), "deploy")
	options := []cli.ProjectOptionsFn{cli.WithWorkingDirectory(folder)}
	if envFile != "" {
		options = append(options, cli.WithEnvFiles(filepath.Join(folder, envFile)), cli.WithDotEnv)
	}
	o, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")}, append(options, cli.WithDefaultProfiles())...)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// ways are the two in which it is started.
func ways(t *testing.T, check func(*testing.T, *types.Project)) {
	for _, envFile := range []string{"", "compose/r3.env"} {
		t.Run("with "+envFile, func(t *testing.T) { check(t, project(t, envFile)) })
	}
}

// ours are the services that run the program.
func ours(p *types.Project) (found []types.ServiceConfig) {
	for _, s := range p.Services {
		if s.Build != nil {
			found = append(found, s)
		}
	}
	return found
}

func TestComposeRunsAllParts(t *testing.T) {
	ways(t, func(t *testing.T, p *types.Project) {
		for _, name := range []string{"postgres", "nats", "migrate", "provider", "worker", "screen", "jaeger", "prometheus", "grafana"} {
			if _, ok := p.Services[name]; !ok {
				t.Errorf("there is no %s", name)
			}
		}
	})
	if one, three := project(t, ""), project(t, "compose/r3.env"); len(three.Services) != len(one.Services)+2 {
		t.Errorf("%d services with three NATS servers, %d with one", len(three.Services), len(one.Services))
	}
}

func TestComposeVariablesAndFlagsAreKnown(t *testing.T) {
	ways(t, func(t *testing.T, p *types.Project) {
		if len(ours(p)) != 4 {
			t.Fatalf("%d services run the program", len(ours(p)))
		}
		for _, s := range ours(p) {
			c := takesArguments(t, s.Name, s.Command)
			for name, value := range s.Environment {
				if !slices.Contains(c.variables, name) && !readByOthers(name) {
					t.Errorf("%s: settle %s knows no variable %s", s.Name, s.Command[0], name)
				}
				if value == nil || *value == "" {
					t.Errorf("%s: %s is empty", s.Name, name)
				}
			}
			if s.Build.Dockerfile != "deploy/Dockerfile" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.User != "" {
				t.Errorf("%s is built from %s, or not kept down", s.Name, s.Build.Dockerfile)
			}
		}
	})
}

func TestComposeKeepsToItself(t *testing.T) {
	ways(t, func(t *testing.T, p *types.Project) {
		for _, s := range p.Services {
			if s.Image != "settle:local" && !isOneVersion(s.Image) {
				t.Errorf("%s runs %s, which is not one version", s.Name, s.Image)
			}
			for _, port := range s.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s: port %s is open to the network", s.Name, port.Published)
				}
			}
			for _, v := range s.Volumes {
				info, err := os.Stat(v.Source)
				if v.Type == types.VolumeTypeBind && (err != nil || !info.Mode().IsRegular() || !v.ReadOnly) {
					t.Errorf("%s mounts %s, which is no file, or for writing: %v", s.Name, v.Source, err)
				}
				if v.Type == types.VolumeTypeVolume && p.Volumes[v.Source].Name == "" {
					t.Errorf("%s: there is no volume %s", s.Name, v.Source)
				}
			}
			for on, d := range s.DependsOn {
				other, there := p.Services[on]
				if d.Required && !there {
					t.Errorf("%s waits for %s, which does not run", s.Name, on)
				}
				if there && d.Condition == types.ServiceConditionHealthy && other.HealthCheck == nil {
					t.Errorf("%s waits for the health of %s, which has no check", s.Name, on)
				}
			}
		}
	})
}

// What servers ask each other for: every host in a setting is a service, and every port one on which it listens.
func TestComposeServicesFindEachOther(t *testing.T) {
	listens := map[string][]string{
		"postgres": {"", "5432"}, "nats": {"4222", "8222"}, "nats-2": {"4222"}, "nats-3": {"4222"}, "provider": {"8090"},
		"jaeger": {"4317", "4318"}, "worker": {"8089"}, "prometheus": {"9090"},
	}
	address := regexp.MustCompile(`(?:nats|http|postgres)://(?:[a-z:]+@)?([a-z0-9-]+)(?::(\d+))?`)
	ways(t, func(t *testing.T, p *types.Project) {
		for _, s := range ours(p) {
			for name, value := range s.Environment {
				for _, m := range address.FindAllStringSubmatch(*value, -1) {
					if _, there := p.Services[m[1]]; m[1] != "localhost" && (!there || !slices.Contains(listens[m[1]], m[2])) {
						t.Errorf("%s: %s leads to %s, where nobody listens", s.Name, name, m[0])
					}
				}
			}
		}
		provider := p.Services["provider"]
		if a := *provider.Environment["SETTLE_PROVIDER_ADDR"]; a != "0.0.0.0:8090" {
			t.Errorf("the provider listens on %s", a)
		}
		for _, s := range []string{"worker", "screen"} {
			for _, port := range p.Services[s].Ports {
				if _, want, _ := net.SplitHostPort(*p.Services[s].Environment["SETTLE_ADMIN_ADDR"]); want != fmt.Sprint(port.Target) {
					t.Errorf("%s: port %d, and it listens on %s", s, port.Target, want)
				}
			}
		}
	})
}

func TestComposeWorkersGetTheTimeToStop(t *testing.T) {
	worker := project(t, "").Services["worker"]
	drain, err := time.ParseDuration(*worker.Environment["SETTLE_DRAIN_TIMEOUT"])
	if err != nil || worker.StopGracePeriod == nil || time.Duration(*worker.StopGracePeriod) < drain+deploy.BeyondDrain {
		t.Errorf("a worker is killed after %v, want %s and %s more (%v)", worker.StopGracePeriod, drain, deploy.BeyondDrain, err)
	}
}

// The NATS servers take their files, and acknowledge what survives: one by its disk, three by each other.
func TestComposeServersOfNATS(t *testing.T) {
	for name, cluster := range map[string]bool{"single.conf": false, "cluster.conf": true} {
		o, err := server.ProcessConfigFile(filepath.Join(deploy.Root(), "deploy", "compose", name))
		if err != nil {
			t.Fatal(err)
		}
		if !o.JetStream || o.Port != 4222 || o.HTTPPort != 8222 || (len(o.Routes) == 3) != cluster || o.SyncAlways == cluster {
			t.Errorf("%s: JetStream %v, sync always %v, %d routes", name, o.JetStream, o.SyncAlways, len(o.Routes))
		}
	}
	for envFile, want := range map[string]string{"": "1", "compose/r3.env": "3"} {
		if got := *project(t, envFile).Services["migrate"].Environment["SETTLE_REPLICAS"]; got != want {
			t.Errorf("streams have %s replicas, want %s", got, want)
		}
	}
	three := project(t, "compose/r3.env")
	for _, node := range []string{"nats", "nats-2", "nats-3"} {
		s := three.Services[node]
		if !slices.Contains(s.Command, "/etc/nats/cluster.conf") || s.Command[len(s.Command)-1] != node {
			t.Errorf("%s runs %v", node, s.Command)
		}
	}
}

// Grafana finds the dashboard and Prometheus, and Prometheus the workers and the tested rules.
func TestComposeDashboardAndRulesAreTheTestedOnes(t *testing.T) {
	p := project(t, "")
	mounts := func(service, file, target string) {
		t.Helper()
		if !slices.ContainsFunc(p.Services[service].Volumes, func(v types.ServiceVolumeConfig) bool {
			return strings.HasSuffix(v.Source, file) && v.Target == target
		}) {
			t.Errorf("%s has not %s as %s", service, file, target)
		}
	}
	mounts("grafana", "deploy/grafana/settle.json", "/etc/settle/settle.json")
	mounts("prometheus", "deploy/prometheus/rules.yaml", "/etc/prometheus/rules.yaml")
	for file, want := range map[string][]string{
		"grafana/datasource.yaml": {"type: prometheus", "url: http://prometheus:9090"}, "grafana/dashboards.yaml": {"path: /etc/settle"},
		"prometheus.yaml": {"rule_files: [rules.yaml]", "names: [worker]", "port: 8089", `targets: ["screen:8086"]`}, "jaeger.yaml": {"0.0.0.0:4317", "0.0.0.0:16686"},
	} {
		text := read(t, "compose", file)
		var content map[string]any
		if err := yaml.UnmarshalStrict(text, &content); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s does not say %s", file, w)
			}
		}
	}
	if !strings.HasPrefix(p.Services["jaeger"].Image, "jaegertracing/jaeger:2.") {
		t.Errorf("Jaeger is %s, want 2.x", p.Services["jaeger"].Image)
	}
}
