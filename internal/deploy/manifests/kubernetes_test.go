package manifests

import (
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/settlemq/settle/internal/deploy"
)

// both runs a check on the base and on what production makes of it.
func both(t *testing.T, check func(*testing.T, cluster)) {
	for _, folder := range []string{"base", "production"} {
		t.Run(folder, func(t *testing.T) { check(t, build(t, folder)) })
	}
}

func TestEveryVariableAndFlagIsKnownToItsCommand(t *testing.T) {
	both(t, func(t *testing.T, c cluster) {
		asked := map[string]bool{}
		for _, w := range c.workloads() {
			command := takesArguments(t, w.name, w.container().Args)
			for _, e := range w.container().Env {
				if !slices.Contains(command.variables, e.Name) && !readByOthers(e.Name) {
					t.Errorf("%s: settle %s knows no variable %s", w.name, w.container().Args[0], e.Name)
				}
			}
			if len(w.container().EnvFrom) > 0 {
				for _, v := range command.variables {
					asked[v] = true
				}
			}
		}
		for v := range c["ConfigMap/settle"].(*core.ConfigMap).Data {
			if !asked[v] && !readByOthers(v) {
				t.Errorf("the ConfigMap says %s, and no command asks", v)
			}
		}
	})
}

// What has to be set is set: each command that has the flag gets a database, a NATS, a provider.
func TestEachProcessKnowsItsServersAndIsAnotherUser(t *testing.T) {
	c := build(t, "base")
	roles := string(read(t, "roles.sql"))
	users := string(read(t, "nats", "users.conf"))
	for name, want := range map[string]struct{ role, user string }{
		"settle-worker": {"worker", "worker"}, "settle-screen": {"operator", "screen"}, "settle-migrate": {"migrator", "admin"},
		"settle-recovery": {"recovery", ""}, "settle-archive": {"archiver", ""},
	} {
		i := slices.IndexFunc(c.workloads(), func(w workload) bool { return w.name == name })
		if i < 0 {
			t.Errorf("there is no %s", name)
			continue
		}
		w := c.workloads()[i]
		values, secrets := c.environment(w)
		if s := secrets["DATABASE_URL"]; s.Name != "settle-database" || s.Key != want.role || !strings.Contains(roles, "settle_"+want.role+" ") {
			t.Errorf("%s: its database is %v, want the role %s", name, s, want.role)
		}
		if want.user == "" {
			continue
		}
		if values["NATS_URL"] == "" || values["NATS_INBOX"] != "_INBOX."+want.user || !strings.Contains(users, "_INBOX."+want.user+".>") ||
			!strings.Contains(users, "CN=settle-"+want.user) {
			t.Errorf("%s: NATS_INBOX is %q, want that of %s, as users.conf has it", name, values["NATS_INBOX"], want.user)
		}
		if !slices.ContainsFunc(w.Spec.Volumes, func(v core.Volume) bool { return v.Secret != nil && v.Secret.SecretName == "settle-nats-"+want.user }) {
			t.Errorf("%s has not the certificate of %s", name, want.user)
		}
	}
}

func TestSelectorsFindTheirPods(t *testing.T) {
	both(t, func(t *testing.T, c cluster) {
		for what, selector := range c.selectors(t) {
			if !slices.ContainsFunc(c.workloads(), func(w workload) bool { return covers(selector, w.Labels) }) {
				t.Errorf("%s selects %v, and no pod has it", what, selector)
			}
		}
		for _, d := range all[*apps.Deployment](c) {
			if !covers(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
				t.Errorf("%s does not select its own pods", d.Name)
			}
		}
	})
}

// covers reports whether labels have all that a selector asks for.
func covers(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return true
}

func TestPortsLeadSomewhere(t *testing.T) {
	both(t, func(t *testing.T, c cluster) {
		for _, w := range c.workloads() {
			values, _ := c.environment(w)
			for _, p := range w.container().Ports {
				listens := map[string]string{"http": values["SETTLE_HTTP_ADDR"], "https": values["SETTLE_ADMIN_ADDR"]}[p.Name]
				if host, port, err := net.SplitHostPort(listens); err != nil || host != "0.0.0.0" || port != strconv.Itoa(int(p.ContainerPort)) {
					t.Errorf("%s: port %s is %d, and it listens on %q", w.name, p.Name, p.ContainerPort, listens)
				}
			}
			for what, probe := range map[string]*core.Probe{"/readyz": w.container().ReadinessProbe, "/healthz": w.container().LivenessProbe} {
				switch {
				case len(w.container().Ports) == 0:
				case probe == nil || probe.HTTPGet.Path != what || probe.HTTPGet.Port.StrVal != w.container().Ports[0].Name:
					t.Errorf("%s is not asked for %s on its port", w.name, what)
				case (probe.HTTPGet.Scheme == core.URISchemeHTTPS) != (values["SETTLE_ADMIN_TLS_CERT"] != ""):
					t.Errorf("%s is asked by %q", w.name, probe.HTTPGet.Scheme)
				}
			}
		}
		c.portsOfServices(t)
	})
}

func TestSecretsAreThoseOfTheExample(t *testing.T) {
	c := build(t, "production")
	example := decode(t, "secrets.example.yaml", read(t, "kubernetes", "secrets.example.yaml"))
	used := map[string]bool{}
	has := func(who, secret, key string) {
		s, ok := example["Secret/"+secret].(*core.Secret)
		if !ok || key != "" && s.StringData[key] == "" {
			t.Errorf("%s wants %s of Secret %s, which the example lacks", who, key, secret)
		}
		used["Secret/"+secret] = true
	}
	for _, w := range c.workloads() {
		mounted := map[string]string{} // Secret by folder
		for _, v := range w.Spec.Volumes {
			has(w.name, v.Secret.SecretName, "")
			if *v.Secret.DefaultMode&0o007 != 0 {
				t.Errorf("%s: others read %s", w.name, v.Name)
			}
			for _, m := range w.container().VolumeMounts {
				if m.Name == v.Name {
					mounted[m.MountPath] = v.Secret.SecretName
				}
			}
		}
		values, secrets := c.environment(w)
		for name, value := range values {
			if strings.HasPrefix(value, "/") && (mounted[path.Dir(value)] != "" || !strings.HasPrefix(name, "NATS_")) {
				has(w.name+": "+name, mounted[path.Dir(value)], path.Base(value))
			} else if strings.HasPrefix(value, "/") && slices.Contains(help(t, w.container().Args[0]).variables, name) {
				t.Errorf("%s: %s is %s, which is not mounted", w.name, name, value)
			}
		}
		for name, s := range secrets {
			has(w.name+": "+name, s.Name, s.Key)
			url := example["Secret/"+s.Name].(*core.Secret).StringData[s.Key]
			m := regexp.MustCompile(`^postgres://settle_(\w+):.*sslmode=verify-full&sslrootcert=(\S+)$`).FindStringSubmatch(url)
			if len(m) == 0 || m[1] != s.Key || mounted[path.Dir(m[2])] == "" {
				t.Errorf("%s: the example of %s does not verify the server, or with a file that is not there", w.name, s.Key)
			}
		}
	}
	for name := range maps.Keys(example) {
		if !used[name] {
			t.Errorf("nobody uses %s", name)
		}
	}
}

func TestPodsHaveNoMoreThanTheyNeed(t *testing.T) {
	both(t, func(t *testing.T, c cluster) {
		for _, w := range c.workloads() {
			p, s := w.Spec.SecurityContext, w.container().SecurityContext
			switch {
			case len(w.Spec.Containers) != 1 || len(w.Spec.InitContainers) > 0:
				t.Errorf("%s has more than one container", w.name)
			case p == nil || !*p.RunAsNonRoot || *p.RunAsUser != 65532 || p.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault:
				t.Errorf("%s: who it runs as is not kept down", w.name)
			case s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}):
				t.Errorf("%s: what it may do is not kept down", w.name)
			case w.Spec.AutomountServiceAccountToken == nil || *w.Spec.AutomountServiceAccountToken:
				t.Errorf("%s gets a token of the cluster", w.name)
			}
			r := w.container().Resources
			if r.Requests.Cpu().IsZero() || r.Requests.Memory().IsZero() || r.Limits.Memory().IsZero() {
				t.Errorf("%s: resources are not bounded", w.name)
			}
			if image := w.container().Image; !strings.HasPrefix(image, "registry.example/settle:") || !isOneVersion(image) {
				t.Errorf("%s runs %s, which is not one version", w.name, image)
			}
			c.memoryFits(t, w)
		}
	})
}

// memoryFits: the collector's limit is below the kernel's.
func (c cluster) memoryFits(t *testing.T, w workload) {
	t.Helper()
	values, _ := c.environment(w)
	text, found := values["GOMEMLIMIT"]
	if !found {
		return
	}
	mebibytes, err := strconv.Atoi(strings.TrimSuffix(text, "MiB"))
	resources := w.container().Resources
	limit := resources.Limits.Memory().Value() >> 20
	if err != nil || int64(mebibytes) >= limit || int64(mebibytes) < limit*3/4 {
		t.Errorf("%s: GOMEMLIMIT is %s, of %d MiB", w.name, text, limit)
	}
}

func TestPodsGetTheTimeToStop(t *testing.T) {
	both(t, func(t *testing.T, c cluster) {
		for _, w := range c.workloads() {
			values, _ := c.environment(w)
			if !slices.Contains([]string{"work", "recover", "admin"}, w.container().Args[0]) {
				continue // they stop between two statements
			}
			drain, err := time.ParseDuration(values["SETTLE_DRAIN_TIMEOUT"])
			if err != nil {
				t.Fatal(err)
			}
			grace := w.Spec.TerminationGracePeriodSeconds
			if want := drain + deploy.BeyondDrain; grace == nil || time.Duration(*grace)*time.Second < want {
				t.Errorf("%s is killed before %s are over", w.name, want)
			}
		}
	})
}

func TestJobsDoNotMeetThemselves(t *testing.T) {
	c := build(t, "base")
	for _, j := range all[*batch.CronJob](c) {
		if j.Spec.ConcurrencyPolicy != batch.ForbidConcurrent || j.Spec.JobTemplate.Spec.ActiveDeadlineSeconds == nil {
			t.Errorf("%s may run beside itself, or for ever", j.Name)
		}
	}
}
