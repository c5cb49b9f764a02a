// Package kubernetes has only tests: they hold the manifests in this folder to
// the types of Kubernetes and to what the sandbox controller reads.
package kubernetes

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifest is one object of one file.
type manifest struct {
	file   string
	kind   string // apiVersion/kind
	text   []byte
	object any
}

// The kinds of the sandbox controller, as far as our manifests use them: its
// types are read from here, and a field that is not here is an error.
type (
	meta struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   metav1.ObjectMeta `json:"metadata"`
	}
	podTemplate struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec corev1.PodSpec `json:"spec"`
	}
	volumeClaim struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
	}
	pod struct {
		Service              bool          `json:"service"`
		PodTemplate          podTemplate   `json:"podTemplate"`
		VolumeClaimTemplates []volumeClaim `json:"volumeClaimTemplates"`
	}
	sandboxTemplate struct {
		meta
		Spec struct {
			pod
			EnvVarsInjectionPolicy  string `json:"envVarsInjectionPolicy"`
			NetworkPolicyManagement string `json:"networkPolicyManagement"`
		} `json:"spec"`
	}
	named struct {
		Name string `json:"name"`
	}
	sandboxWarmPool struct {
		meta
		Spec struct {
			Replicas           int   `json:"replicas"`
			SandboxTemplateRef named `json:"sandboxTemplateRef"`
			UpdateStrategy     struct {
				Type string `json:"type"`
			} `json:"updateStrategy"`
		} `json:"spec"`
	}
	sandboxClaim struct {
		meta
		Spec struct {
			WarmPoolRef named `json:"warmPoolRef"`
			Lifecycle   struct {
				TTLSecondsAfterFinished int          `json:"ttlSecondsAfterFinished"`
				ShutdownPolicy          string       `json:"shutdownPolicy"`
				ShutdownTime            *metav1.Time `json:"shutdownTime"`
			} `json:"lifecycle"`
		} `json:"spec"`
	}
	sandbox struct {
		meta
		Spec struct {
			pod
			OperatingMode  string       `json:"operatingMode"`
			ShutdownPolicy string       `json:"shutdownPolicy"`
			ShutdownTime   *metav1.Time `json:"shutdownTime"`
		} `json:"spec"`
	}
)

// kinds are the objects we know how to read.
var kinds = map[string]func() any{
	"v1/Pod":                             func() any { return &corev1.Pod{} },
	"v1/Service":                         func() any { return &corev1.Service{} },
	"v1/PersistentVolumeClaim":           func() any { return &corev1.PersistentVolumeClaim{} },
	"apps/v1/Deployment":                 func() any { return &appsv1.Deployment{} },
	"networking.k8s.io/v1/NetworkPolicy": func() any { return &networkingv1.NetworkPolicy{} },
	"extensions.agents.x-k8s.io/v1beta1/SandboxTemplate": func() any { return &sandboxTemplate{} },
	"extensions.agents.x-k8s.io/v1beta1/SandboxWarmPool": func() any { return &sandboxWarmPool{} },
	"extensions.agents.x-k8s.io/v1beta1/SandboxClaim":    func() any { return &sandboxClaim{} },
	"agents.x-k8s.io/v1beta1/Sandbox":                    func() any { return &sandbox{} },
}

// read reads one document strictly: unknown and repeated fields are errors.
func read(t *testing.T, file string, text []byte) manifest {
	t.Helper()
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(text, &head); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	m := manifest{file: file, kind: head.APIVersion + "/" + head.Kind, text: text}
	make, ok := kinds[m.kind]
	if !ok {
		t.Fatalf("%s: the kind %s is not known", file, m.kind)
	}
	m.object = make()
	if err := strictly(text, m.object); err != nil {
		t.Fatalf("%s: %s: %v", file, m.kind, err)
	}
	return m
}

// strictly reads as an API server does that validates strictly: unknown fields,
// those of wrong case and repeated ones are errors.
func strictly(text []byte, into any) error {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(asJSON, into)
	return errors.Join(append(strict, err)...)
}

// manifests are all objects below this folder.
func manifests(t *testing.T) []manifest {
	t.Helper()
	files, err := filepath.Glob("*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []manifest
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			out = append(out, read(t, file, doc))
		}
	}
	if len(out) < 10 {
		t.Fatalf("only %d objects were found", len(out))
	}
	return out
}

// only is the one object of a type in a folder.
func only[T any](t *testing.T, folder string) *T {
	t.Helper()
	var found *T
	for _, m := range manifests(t) {
		if o, ok := m.object.(*T); ok && strings.HasPrefix(m.file, folder+"/") {
			if found != nil {
				t.Fatalf("%s has two %T", folder, o)
			}
			found = o
		}
	}
	if found == nil {
		t.Fatalf("%s has no %T", folder, found)
	}
	return found
}
