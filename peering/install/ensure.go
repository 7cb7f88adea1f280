package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
)

// CRDPath is the path of the custom resource definitions.
const CRDPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

const (
	admissionPath = "/apis/admissionregistration.k8s.io/"
	webhookPath   = admissionPath + "v1/validatingwebhookconfigurations"
	namespacePath = "/api/v1/namespaces/"

	// establishTimeout bounds the time an API server may take to serve a custom
	// resource it accepted.
	establishTimeout = 30 * time.Second
	// establishTries is how often one is asked about in a row when the server says
	// that it cannot answer now. All of them have to succeed before there is a
	// connection, so one answer that fails must not spoil the others.
	establishTries = 5
)

// CRDs makes every custom resource exist as this build knows it, and waits
// until the API server serves them. It writes only what differs.
func (k *Keeper) CRDs(ctx context.Context) error {
	manifests := api.CRDs()
	errs := make([]error, len(manifests))
	var group sync.WaitGroup
	for i, manifest := range manifests {
		group.Go(func() { errs[i] = k.ensureCRD(ctx, manifest, &k.settled[i]) })
	}
	group.Wait()
	return cmp.Or(errs...) // what one meets, the others mostly meet as well
}

// ensureCRD makes one custom resource exist. settled is the resource version in which it was as it is to be, "" for
// none: what has not changed since is not looked at again, because to read and to compare it takes more memory than all
// else that an idle agent does.
func (k *Keeper) ensureCRD(ctx context.Context, manifest api.Manifest, settled *string) error {
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	name := manifest.Name
	path := CRDPath + "/" + name
	var wanted map[string]any
	applied, failures := false, 0
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		var text json.RawMessage
		err := k.client.Get(ctx, path, &text)
		if err != nil && !apierrors.IsNotFound(err) {
			if failures++; failures < establishTries && passing(err) && work.Sleep(ctx, pause) == nil {
				continue
			}
			return err
		}
		missing := err != nil
		var version string
		var found map[string]any
		if !missing {
			version = resourceVersion(text)
			if version != "" && version == *settled {
				return nil
			}
			if err := json.Unmarshal(text, &found); err != nil {
				return fmt.Errorf("read custom resource definition %s: %w", name, err)
			}
		}
		if wanted == nil {
			if err := yaml.Unmarshal(manifest.YAML, &wanted); err != nil {
				return fmt.Errorf("manifest of %s: %w", name, err)
			}
			stampGeneration(wanted)
		}
		switch {
		case !missing && generationOf(found) > Generation:
			// A newer agent brought it, and objects may have fields that we do not know: it
			// serves us as it is, because no newer build takes anything away.
			k.newer.Store(generationOf(found))
			established, err := Established(found)
			if established {
				*settled = version
			}
			if established || err != nil {
				return err
			}
		case !applied && (missing || !Covers(found, wanted)):
			// A definition that somebody else brought is changed only where nobody else
			// claims a field; else the error says who does.
			ours := missing || managedByAgent(found)
			err := k.client.Apply(ctx, path, ManagerCRDs, ours, wanted, nil)
			if err != nil {
				if failures++; failures == establishTries || !passing(err) {
					return err
				}
			}
			applied = err == nil
		case missing:
			return fmt.Errorf("custom resource definition %s was deleted while it was installed", name)
		default:
			established, err := Established(found)
			if established && !applied { // else it has not been compared
				*settled = version
			}
			if established || err != nil {
				return err
			}
		}
		if err := work.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("custom resource definition %s is not served after %v: %w", name, establishTimeout, err)
		}
	}
}

// resourceVersion returns that of an object, "" if it cannot be read.
func resourceVersion(object []byte) string {
	var o struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if json.Unmarshal(object, &o) != nil {
		return ""
	}
	return o.Metadata.ResourceVersion
}

// passing reports whether an API server that answers with err may answer
// otherwise in a moment. One that does not answer at all is left to the caller,
// who tells people about it.
func passing(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServerTimeout(err)
}

// ensureWebhook makes the configuration of the admission webhook exist as
// wanted, which is a whole manifest. It writes only when something differs. What
// the API server filled in, and webhooks that others added, do not count.
func ensureWebhook(ctx context.Context, c *kube.Client, manifest map[string]any) error {
	// As the API server's answers are decoded, so that the two can be compared.
	text, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("manifest of the admission webhook: %w", err)
	}
	var wanted map[string]any
	if err := json.Unmarshal(text, &wanted); err != nil {
		return fmt.Errorf("manifest of the admission webhook: %w", err)
	}
	metadata, _ := wanted["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	path := webhookPath + "/" + name
	var found map[string]any
	err = c.Get(ctx, path, &found)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && shows(found, wanted) {
		return nil
	}
	return c.Apply(ctx, path, ManagerWebhook, err != nil || managedByAgent(found), wanted, nil)
}

// shows is Covers for objects in whose lists the API server does fill in
// fields: the elements of a list that have names are compared by name, and
// others in order.
func shows(found, wanted any) bool {
	switch w := wanted.(type) {
	case map[string]any:
		f, _ := found.(map[string]any)
		for key, value := range w {
			if !shows(f[key], value) {
				return false
			}
		}
		return true
	case []any:
		f, _ := found.([]any)
		for i, element := range w {
			if name := nameOf(element); name != nil {
				at := slices.IndexFunc(f, func(other any) bool { return nameOf(other) == name })
				if at < 0 || !shows(f[at], element) {
					return false
				}
			} else if len(f) != len(w) || !shows(f[i], element) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(found, wanted)
}

// nameOf returns the name of an element of a list, nil when it has none.
func nameOf(element any) any {
	m, _ := element.(map[string]any)
	name, _ := m["name"].(string)
	if name == "" {
		return nil
	}
	return name
}

func managedByAgent(object map[string]any) bool {
	metadata, _ := object["metadata"].(map[string]any)
	labels, _ := metadata["labels"].(map[string]any)
	return labels[api.LabelManagedBy] == api.ManagedByAgent
}

// Covers reports whether a custom resource definition, or a part of one, says
// everything that wanted does. What the API server fills in on its own does not
// count, but in lists, which is to say in the versions with their schemas, it
// fills in nothing, and there found must not say more either: a field that a
// newer build dropped has to go.
func Covers(found, wanted any) bool {
	w, isMap := wanted.(map[string]any)
	if !isMap {
		return reflect.DeepEqual(found, wanted)
	}
	f, _ := found.(map[string]any)
	for key, value := range w {
		if !Covers(f[key], value) {
			return false
		}
	}
	return true
}

// Established reports whether the API server serves a custom resource definition.
// An error says that it will not, because another one has its names.
func Established(crd map[string]any) (bool, error) {
	spec, _ := crd["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	status, _ := crd["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	established := false
	for _, c := range conditions {
		condition, _ := c.(map[string]any)
		switch {
		case condition["type"] == "NamesAccepted" && condition["status"] == "False":
			return false, fmt.Errorf("the API server does not serve %v of group %v because another custom resource uses its names: %v", names["kind"], spec["group"], condition["message"])
		case condition["type"] == "Established":
			established = condition["status"] == "True"
		}
	}
	return established, nil
}
