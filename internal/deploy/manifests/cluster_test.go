package manifests

import (
	"bytes"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/settlemq/settle/internal/deploy"
)

// scaledObject is KEDA's, as far as it is used: another field fails. Its own module would bring hundreds of others.
type scaledObject struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
		} `json:"scaleTargetRef"`
		MinReplicaCount *int32 `json:"minReplicaCount"`
		MaxReplicaCount *int32 `json:"maxReplicaCount"`
		PollingInterval *int32 `json:"pollingInterval"`
		CooldownPeriod  *int32 `json:"cooldownPeriod"`
		Fallback        *struct {
			FailureThreshold int32 `json:"failureThreshold"`
			Replicas         int32 `json:"replicas"`
		} `json:"fallback"`
		Triggers []struct {
			Type     string            `json:"type"`
			Metadata map[string]string `json:"metadata"`
		} `json:"triggers"`
	} `json:"spec"`
}

// kinds are all that may stand in the manifests.
var kinds = map[string]any{
	"v1/Namespace": core.Namespace{}, "v1/ConfigMap": core.ConfigMap{}, "v1/Secret": core.Secret{}, "v1/Service": core.Service{},
	"apps/v1/Deployment": apps.Deployment{}, "batch/v1/Job": batch.Job{}, "batch/v1/CronJob": batch.CronJob{},
	"policy/v1/PodDisruptionBudget": policy.PodDisruptionBudget{}, "networking.k8s.io/v1/NetworkPolicy": networking.NetworkPolicy{},
	"monitoring.coreos.com/v1/ServiceMonitor": monitoring.ServiceMonitor{}, "monitoring.coreos.com/v1/PrometheusRule": monitoring.PrometheusRule{},
	"keda.sh/v1alpha1/ScaledObject": scaledObject{},
}

// cluster is what kustomize makes of a folder, by kind and name: *apps.Deployment and so on.
type cluster map[string]any

func build(t *testing.T, folder string) cluster {
	t.Helper()
	return buildFolder(t, filepath.Join(deploy.Root(), "deploy", "kubernetes", folder))
}

func buildFolder(t *testing.T, folder string) cluster {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	text, err := made.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, filepath.Base(folder), text)
}

// decode takes each document for what it says it is, and no field too many.
func decode(t *testing.T, from string, text []byte) cluster {
	t.Helper()
	c := cluster{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var head meta.TypeMeta
		if err := yaml.Unmarshal(document, &head); err != nil {
			t.Fatalf("%s: %v\n%s", from, err, document)
		}
		sort, known := kinds[head.APIVersion+"/"+head.Kind]
		if !known {
			t.Errorf("%s: nobody checks a %s of %s", from, head.Kind, head.APIVersion)
			continue
		}
		object := reflect.New(reflect.TypeOf(sort)).Interface()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %s: %v", from, head.Kind, err)
		}
		name := head.Kind + "/" + object.(meta.Object).GetName()
		if c[name] != nil {
			t.Errorf("%s has %s twice", from, name)
		}
		c[name] = object
	}
	return c
}

// all are the objects of one type.
func all[T any](c cluster) (found []T) {
	for _, o := range c {
		if is, ok := o.(T); ok {
			found = append(found, is)
		}
	}
	return found
}

// workload is a pod template, whatever makes pods of it.
type workload struct {
	name string
	core.PodTemplateSpec
}

func (c cluster) workloads() (found []workload) {
	for _, d := range all[*apps.Deployment](c) {
		found = append(found, workload{d.Name, d.Spec.Template})
	}
	for _, j := range all[*batch.Job](c) {
		found = append(found, workload{j.Name, j.Spec.Template})
	}
	for _, j := range all[*batch.CronJob](c) {
		found = append(found, workload{j.Name, j.Spec.JobTemplate.Spec.Template})
	}
	slices.SortFunc(found, func(a, b workload) int { return strings.Compare(a.name, b.name) })
	return found
}

func (w workload) container() core.Container { return w.Spec.Containers[0] }

// environment is what the container gets: of a ConfigMap, of values, and the Secrets' keys of the rest.
func (c cluster) environment(w workload) (values map[string]string, secret map[string]core.SecretKeySelector) {
	values, secret = map[string]string{}, map[string]core.SecretKeySelector{}
	for _, from := range w.container().EnvFrom {
		for name, value := range c["ConfigMap/"+from.ConfigMapRef.Name].(*core.ConfigMap).Data {
			values[name] = value
		}
	}
	for _, e := range w.container().Env {
		if e.ValueFrom != nil {
			secret[e.Name] = *e.ValueFrom.SecretKeyRef
		} else {
			values[e.Name] = e.Value
		}
	}
	return values, secret
}

// The sources are strict too: kustomize would take a key that is there twice.
func TestTheSourcesAreStrict(t *testing.T) {
	for _, folder := range []string{"base", "production"} {
		files, err := filepath.Glob(filepath.Join(deploy.Root(), "deploy", "kubernetes", folder, "*.yaml"))
		if err != nil || len(files) < 4 {
			t.Fatalf("%d files in %s: %v", len(files), folder, err)
		}
		for _, file := range files {
			if name := filepath.Base(file); name != "kustomization.yaml" {
				decode(t, name, read(t, "kubernetes", folder, name))
			}
		}
	}
}

func TestAMistakeIsFound(t *testing.T) {
	for _, text := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selectors: {a: b}}",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: two}",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}",
		"apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: a}\nspec: {minReplicas: 1}",
		"apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: a}\nspec: {endpoint: []}",
	} {
		var head meta.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatal(err)
		}
		object := reflect.New(reflect.TypeOf(kinds[head.APIVersion+"/"+head.Kind])).Interface()
		if yaml.UnmarshalStrict([]byte(text), object) == nil {
			t.Errorf("taken for right: %s", strings.ReplaceAll(text, "\n", "; "))
		}
	}
}
