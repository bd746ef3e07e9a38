package manifests

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/settlemq/settle/consumer"
)

// selectors are all that look for pods, by who does.
func (c cluster) selectors(t *testing.T) map[string]map[string]string {
	t.Helper()
	found := map[string]map[string]string{}
	for _, s := range all[*core.Service](c) {
		found["Service "+s.Name] = s.Spec.Selector
	}
	for _, p := range all[*policy.PodDisruptionBudget](c) {
		found["PodDisruptionBudget "+p.Name] = p.Spec.Selector.MatchLabels
		if p.Spec.MinAvailable != nil || p.Spec.MaxUnavailable == nil || p.Spec.MaxUnavailable.IntVal != 1 {
			t.Errorf("PodDisruptionBudget %s does not let one pod go at a time", p.Name)
		}
	}
	for _, n := range all[*networking.NetworkPolicy](c) {
		found["NetworkPolicy "+n.Name] = n.Spec.PodSelector.MatchLabels
	}
	for _, w := range c.workloads() {
		if a := w.Spec.Affinity; a != nil {
			found["affinity of "+w.name] = a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchLabels
		}
		for _, s := range w.Spec.TopologySpreadConstraints {
			found["spread of "+w.name] = s.LabelSelector.MatchLabels
		}
	}
	for _, needed := range []string{"Service settle-worker", "Service settle-screen", "PodDisruptionBudget settle-worker", "NetworkPolicy settle-screen",
		"NetworkPolicy settle-worker", "affinity of settle-worker", "spread of settle-worker"} {
		if len(found[needed]) == 0 {
			t.Errorf("there is no %s, or it selects everything", needed)
		}
	}
	return found
}

// ports are those of the pods that a selector finds, by name.
func (c cluster) ports(selector map[string]string) map[string]bool {
	found := map[string]bool{}
	for _, w := range c.workloads() {
		for _, p := range w.container().Ports {
			found[p.Name] = found[p.Name] || covers(selector, w.Labels)
		}
	}
	return found
}

func (c cluster) portsOfServices(t *testing.T) {
	t.Helper()
	for _, s := range all[*core.Service](c) {
		for _, p := range s.Spec.Ports {
			if !c.ports(s.Spec.Selector)[p.TargetPort.StrVal] {
				t.Errorf("Service %s leads to the port %q, which no pod of it has", s.Name, p.TargetPort.StrVal)
			}
		}
	}
	for _, n := range all[*networking.NetworkPolicy](c) {
		for _, in := range n.Spec.Ingress {
			if len(in.From) == 0 || len(in.Ports) == 0 {
				t.Errorf("NetworkPolicy %s lets in everybody, or everywhere", n.Name)
			}
			for _, p := range in.Ports {
				if !c.ports(n.Spec.PodSelector.MatchLabels)[p.Port.StrVal] {
					t.Errorf("NetworkPolicy %s opens the port %q, which no pod of it has", n.Name, p.Port.StrVal)
				}
			}
		}
	}
}

func TestPrometheusFindsWorkersAndScreen(t *testing.T) {
	c := build(t, "production")
	found := c.scraped(t)
	if !found["settle-worker"] || !found["settle-screen"] {
		t.Errorf("Prometheus reads metrics of %v", found)
	}
}

// scraped are the Services whose metrics somebody reads.
func (c cluster) scraped(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, m := range all[*monitoring.ServiceMonitor](c) {
		selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all[*core.Service](c) {
			for _, p := range s.Spec.Ports {
				e := m.Spec.Endpoints[0]
				found[s.Name] = found[s.Name] || selector.Matches(labels.Set(s.Labels)) && p.Name == e.Port && e.Path == "/metrics"
			}
		}
	}
	return found
}

// The rules of the cluster are those that are tested.
func TestTheClusterHasTheTestedRules(t *testing.T) {
	c := build(t, "production")
	var tested monitoring.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(read(t, "prometheus", "rules.yaml"), &tested); err != nil {
		t.Fatal(err)
	}
	rules := all[*monitoring.PrometheusRule](c)
	if len(rules) != 1 || len(tested.Groups) == 0 || len(tested.Groups[0].Rules) < 10 || !reflect.DeepEqual(rules[0].Spec, tested) {
		t.Error("production/rules.yaml is not deploy/prometheus/rules.yaml: copy the groups")
	}
}

func TestWorkersComeAndGoWithTheBacklog(t *testing.T) {
	c := build(t, "production")
	scalers := all[*scaledObject](c)
	if len(scalers) != 1 {
		t.Fatalf("%d ScaledObjects", len(scalers))
	}
	s := scalers[0].Spec
	worker, ok := c["Deployment/"+s.ScaleTargetRef.Name].(*apps.Deployment)
	switch {
	case !ok:
		t.Errorf("there is no Deployment %s to scale", s.ScaleTargetRef.Name)
	case worker.Spec.Replicas != nil:
		t.Error("the Deployment sets the number of workers back with each apply")
	}
	_, screen := c["Deployment/settle-screen"]
	if s.MinReplicaCount == nil || *s.MinReplicaCount < 1 && (!screen || !c.scraped(t)["settle-screen"]) {
		t.Error("the last worker goes, and nobody else shows what waits")
	}
	if s.MaxReplicaCount == nil || *s.MaxReplicaCount <= *s.MinReplicaCount || s.Fallback == nil || s.Fallback.Replicas < *s.MinReplicaCount {
		t.Error("between least and most there is nothing, or an outage of Prometheus takes workers away")
	}
	if len(s.Triggers) != 1 || s.Triggers[0].Type != "prometheus" {
		t.Fatalf("triggers are %v", s.Triggers)
	}
	trigger := s.Triggers[0].Metadata
	if trigger["ignoreNullValues"] != "false" {
		t.Error("no answer is taken for an empty backlog")
	}
	if n, err := strconv.Atoi(trigger["threshold"]); err != nil || n < 1 {
		t.Errorf("threshold is %q", trigger["threshold"])
	}
	asksWhatIsThere(t, trigger["query"])
	if base := build(t, "base")["Deployment/settle-worker"].(*apps.Deployment); base.Spec.Replicas == nil || *base.Spec.Replicas < 2 {
		t.Error("the base has fewer than two workers, and nobody who scales them")
	}
}

var parts = regexp.MustCompile(`part=~"([a-z_|]+)"`)

// asksWhatIsThere: the query's metric, labels and parts are those of the program.
func asksWhatIsThere(t *testing.T, query string) {
	t.Helper()
	for _, m := range consumer.Metrics() {
		if m.Name != "settle_backlog" {
			continue
		}
		if !strings.Contains(query, "settle_backlog{") || !strings.Contains(query, "max by (kind, part)") {
			t.Errorf("the query %s does not take the largest of each kind and part", query)
		}
		named := parts.FindStringSubmatch(query)
		if named == nil {
			t.Fatalf("the query %s names no parts", query)
		}
		for part := range strings.SplitSeq(named[1], "|") {
			if !strings.Contains(m.Help, part) {
				t.Errorf("settle_backlog has no part %s", part)
			}
		}
		return
	}
	t.Error("there is no metric settle_backlog")
}
