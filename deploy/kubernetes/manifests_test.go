package kubernetes

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// place is one pod of ours with the name of its file.
type place struct {
	file   string
	labels map[string]string
	spec   *corev1.PodSpec
	claims []string // volumes that come from claim templates
}

func places(t *testing.T) []place {
	t.Helper()
	var out []place
	claims := func(p pod) (names []string) {
		for _, c := range p.VolumeClaimTemplates {
			names = append(names, c.Metadata.Name)
		}
		return names
	}
	for _, m := range manifests(t) {
		switch o := m.object.(type) {
		case *corev1.Pod:
			out = append(out, place{m.file, o.Labels, &o.Spec, nil})
		case *appsv1.Deployment:
			out = append(out, place{m.file, o.Spec.Template.Labels, &o.Spec.Template.Spec, nil})
		case *sandboxTemplate:
			out = append(out, place{m.file, o.Spec.PodTemplate.Metadata.Labels, &o.Spec.PodTemplate.Spec, claims(o.Spec.pod)})
		case *sandbox:
			out = append(out, place{m.file, o.Spec.PodTemplate.Metadata.Labels, &o.Spec.PodTemplate.Spec, claims(o.Spec.pod)})
		}
	}
	if len(out) != 4 {
		t.Fatalf("%d pods", len(out))
	}
	return out
}

// Strictness that never refuses anything proves nothing.
func TestUnknownFieldsAreRefused(t *testing.T) {
	for _, m := range manifests(t) {
		for _, bad := range []string{"\nspecc: {}\n", "\nkind: " + m.kind[strings.LastIndexByte(m.kind, '/')+1:] + "\n"} {
			if err := strictly(append(slices.Clone(m.text), bad...), kinds[m.kind]()); err == nil {
				t.Errorf("%s: %s takes %q", m.file, m.kind, bad)
			}
		}
	}
	deep := regexp.MustCompile(`runAsNonRoot`)
	for _, m := range manifests(t) {
		if text := deep.ReplaceAll(m.text, []byte("runAsNonroot")); string(text) != string(m.text) {
			if err := strictly(text, kinds[m.kind]()); err == nil {
				t.Errorf("%s: a wrong field of the pod is taken", m.file)
			}
		}
	}
}

func TestPodsRunAsNobodySpecial(t *testing.T) {
	for _, p := range places(t) {
		s, c := p.spec.SecurityContext, p.spec.Containers[0].SecurityContext
		if s == nil || c == nil {
			t.Fatalf("%s: no security context", p.file)
		}
		for what, ok := range map[string]bool{
			"one container":           len(p.spec.Containers) == 1,
			"runAsNonRoot":            s.RunAsNonRoot != nil && *s.RunAsNonRoot,
			"uid 1000":                s.RunAsUser != nil && *s.RunAsUser == 1000 && s.RunAsGroup != nil && *s.RunAsGroup == 1000,
			"fsGroup 1000":            s.FSGroup != nil && *s.FSGroup == 1000,
			"seccomp":                 s.SeccompProfile != nil && s.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
			"no escalation":           c.AllowPrivilegeEscalation != nil && !*c.AllowPrivilegeEscalation,
			"read-only root":          c.ReadOnlyRootFilesystem != nil && *c.ReadOnlyRootFilesystem,
			"no capabilities":         c.Capabilities != nil && slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) && len(c.Capabilities.Add) == 0,
			"not privileged":          c.Privileged == nil,
			"no service account":      p.spec.AutomountServiceAccountToken != nil && !*p.spec.AutomountServiceAccountToken,
			"no names of services":    p.spec.EnableServiceLinks != nil && !*p.spec.EnableServiceLinks,
			"own namespaces":          !p.spec.HostNetwork && !p.spec.HostPID && !p.spec.HostIPC,
			"limits":                  len(p.spec.Containers[0].Resources.Limits) == 2,
			"time to stop":            p.spec.TerminationGracePeriodSeconds != nil && *p.spec.TerminationGracePeriodSeconds > 15,
			"a label for the network": p.labels["app"] == "agent-sandbox-server",
		} {
			if !ok {
				t.Errorf("%s: %s", p.file, what)
			}
		}
	}
}

func TestPortsAndProbes(t *testing.T) {
	want := map[string]int32{"api": 9000, "pty": 9001, "envd": 49983}
	for _, p := range places(t) {
		c := p.spec.Containers[0]
		got := map[string]int32{}
		for _, port := range c.Ports {
			got[port.Name] = port.ContainerPort
			if port.HostPort != 0 {
				t.Errorf("%s: port %s is one of the machine", p.file, port.Name)
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: ports %v", p.file, got)
		}
		for name, probe := range map[string]*corev1.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/health" || probe.HTTPGet.Port.StrVal != "api" {
				t.Errorf("%s: the %s probe does not ask /health", p.file, name)
			}
		}
	}
	service := only[corev1.Service](t, "plain")
	for _, port := range service.Spec.Ports {
		if want[port.Name] != port.Port || port.TargetPort.StrVal != port.Name {
			t.Errorf("service port %+v", port)
		}
	}
	if len(service.Spec.Ports) != len(want) {
		t.Errorf("the service has %d ports", len(service.Spec.Ports))
	}
}

// Warm pods get no environment of their claim, and an environment is readable
// by whatever runs in the pod: tokens come by file.
func TestNoTokenTravelsByEnvironment(t *testing.T) {
	for _, p := range places(t) {
		c := p.spec.Containers[0]
		if len(c.EnvFrom) > 0 {
			t.Errorf("%s: envFrom", p.file)
		}
		for _, e := range c.Env {
			if e.ValueFrom != nil || strings.Contains(e.Name, "TOKEN") {
				t.Errorf("%s: %s", p.file, e.Name)
			}
		}
		var policy *corev1.VolumeMount
		for _, m := range c.VolumeMounts {
			if m.MountPath == "/etc/agent-sandbox" {
				policy = &m
			}
		}
		if policy == nil || !policy.ReadOnly {
			t.Fatalf("%s: no policy is mounted, or one that can be written", p.file)
		}
		volume := volumeNamed(p, policy.Name)
		if volume == nil || volume.Secret == nil || volume.Secret.Optional != nil {
			t.Errorf("%s: the policy comes from %+v", p.file, volume)
		}
	}
}

func volumeNamed(p place, name string) *corev1.Volume {
	for i := range p.spec.Volumes {
		if p.spec.Volumes[i].Name == name {
			return &p.spec.Volumes[i]
		}
	}
	return nil
}

func TestEveryMountHasAVolume(t *testing.T) {
	for _, p := range places(t) {
		var mounted []string
		for _, m := range p.spec.Containers[0].VolumeMounts {
			mounted = append(mounted, m.Name)
			if volumeNamed(p, m.Name) == nil && !slices.Contains(p.claims, m.Name) {
				t.Errorf("%s: nothing is mounted at %s", p.file, m.MountPath)
			}
		}
		for _, v := range p.spec.Volumes {
			if !slices.Contains(mounted, v.Name) {
				t.Errorf("%s: the volume %s is mounted nowhere", p.file, v.Name)
			}
		}
		if i := slices.IndexFunc(p.spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/home/user" }); i < 0 {
			t.Errorf("%s: no workspace at /home/user", p.file)
		}
	}
	claim := only[corev1.PersistentVolumeClaim](t, "plain")
	for _, p := range places(t) {
		for _, v := range p.spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName != claim.Name {
				t.Errorf("%s: the claim %s is not in the manifests", p.file, v.PersistentVolumeClaim.ClaimName)
			}
		}
	}
}

// What the init container brings is what the container starts.
func TestTheInitContainerBringsWhatIsStarted(t *testing.T) {
	p := only[corev1.Pod](t, "any-image")
	init, c := p.Spec.InitContainers[0], p.Spec.Containers[0]
	mount := init.VolumeMounts[0]
	if want := mount.MountPath + "/agent-sandbox-server"; init.Command[len(init.Command)-1] != mount.MountPath+"/" || c.Command[0] != want {
		t.Errorf("%q, then %q", init.Command, c.Command)
	}
	if i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == mount.Name }); i < 0 ||
		!c.VolumeMounts[i].ReadOnly || c.VolumeMounts[i].MountPath != mount.MountPath {
		t.Errorf("%+v", c.VolumeMounts)
	}
	if s := init.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		t.Errorf("%+v", s)
	}
}

func TestReferencesMeet(t *testing.T) {
	const folder = "agent-sandbox"
	template, pool, claim := only[sandboxTemplate](t, folder), only[sandboxWarmPool](t, folder), only[sandboxClaim](t, folder)
	box := only[sandbox](t, folder)
	for what, ok := range map[string]bool{
		"the pool makes the template's sandboxes": pool.Spec.SandboxTemplateRef.Name == template.Metadata.Name,
		"the claim takes from the pool":           claim.Spec.WarmPoolRef.Name == pool.Metadata.Name,
		"a claim with variables is refused":       template.Spec.EnvVarsInjectionPolicy == "Disallowed",
		"the controller guards the network":       template.Spec.NetworkPolicyManagement == "Managed",
		"a template's sandboxes have a name":      template.Spec.Service,
		"a sandbox has a name":                    box.Spec.Service,
		"pods are replaced when used":             pool.Spec.UpdateStrategy.Type == "OnReplenish" && pool.Spec.Replicas > 0,
		"claims clean up":                         claim.Spec.Lifecycle.ShutdownPolicy == "Delete" && claim.Spec.Lifecycle.TTLSecondsAfterFinished > 0,
		"a sandbox runs":                          box.Spec.OperatingMode == "Running",
		"the workspace outlives a suspension":     len(box.Spec.VolumeClaimTemplates) == 1,
	} {
		if !ok {
			t.Errorf("it does not hold that %s", what)
		}
	}
	deployment, service := only[appsv1.Deployment](t, "plain"), only[corev1.Service](t, "plain")
	if !maps.Equal(deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels) || !maps.Equal(service.Spec.Selector, deployment.Spec.Template.Labels) {
		t.Error("the labels of the deployment do not meet")
	}
	if *deployment.Spec.Replicas != 1 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Error("two pods would share one name or one volume")
	}
}

// The router reaches its pods only where policies of both sides say so.
func TestTheRouterIsLetThrough(t *testing.T) {
	ports := map[int32]bool{}
	var sides []string
	for _, m := range manifests(t) {
		p, ok := m.object.(*networkingv1.NetworkPolicy)
		if !ok || !strings.HasPrefix(m.file, "agent-sandbox/") {
			continue
		}
		var allowed []networkingv1.NetworkPolicyPort
		switch {
		case len(p.Spec.Egress) == 1:
			allowed = p.Spec.Egress[0].Ports
			if p.Namespace != "agent-sandbox-system" || p.Spec.PodSelector.MatchLabels["app"] != "sandbox-router" ||
				p.Spec.Egress[0].To[0].PodSelector.MatchLabels["app"] != "agent-sandbox-server" || p.Spec.Egress[0].To[0].NamespaceSelector == nil {
				t.Errorf("%s: %s is of the wrong pods", m.file, p.Name)
			}
			sides = append(sides, "egress")
		case len(p.Spec.Ingress) == 1:
			allowed = p.Spec.Ingress[0].Ports
			from := p.Spec.Ingress[0].From[0]
			if p.Spec.PodSelector.MatchLabels["app"] != "agent-sandbox-server" || from.PodSelector.MatchLabels["app"] != "sandbox-router" ||
				from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "agent-sandbox-system" || len(p.Spec.Ingress[0].From) != 1 {
				t.Errorf("%s: %s is of the wrong pods", m.file, p.Name)
			}
			sides = append(sides, "ingress")
		}
		clear(ports)
		for _, a := range allowed {
			ports[a.Port.IntVal] = true
		}
		if !maps.Equal(ports, map[int32]bool{9000: true, 9001: true, 49983: true}) {
			t.Errorf("%s: %s lets through %v", m.file, p.Name, ports)
		}
	}
	slices.Sort(sides)
	if !slices.Equal(sides, []string{"egress", "ingress"}) {
		t.Errorf("%v", sides)
	}
}

func TestThePlainSandboxReachesNoPrivateAddress(t *testing.T) {
	p := only[networkingv1.NetworkPolicy](t, "plain")
	for _, rule := range p.Spec.Egress {
		for _, to := range rule.To {
			if to.IPBlock == nil || strings.Contains(to.IPBlock.CIDR, ":") {
				continue
			}
			for _, private := range []string{"10.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "100.64.0.0/10"} {
				if !slices.Contains(to.IPBlock.Except, private) {
					t.Errorf("%s may be reached", private)
				}
			}
		}
	}
	if len(p.Spec.Ingress) != 1 || len(p.Spec.Ingress[0].From) != 1 {
		t.Error("more than the labelled pods get in")
	}
}
