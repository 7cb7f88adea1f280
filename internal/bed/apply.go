//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// applied is how whoever uses `kubectl apply` is named on the objects.
const applied = "?fieldManager=kubectl-client-side-apply&fieldValidation=Strict"

// Apply applies manifests, one after the other, as a person does by `kubectl apply -f`: fields that are
// unknown are errors, and fields that an object has beyond its manifest stay. It needs no process and none of the schemas
// that kubectl downloads for each call.
func (k *Kube) Apply(ctx context.Context, manifests string) error {
	objects, err := decode(strings.NewReader(manifests))
	if err != nil {
		return fmt.Errorf("read the manifests: %w", err)
	}
	return k.applyAll(ctx, objects)
}

// decode reads manifests, as YAML or JSON.
func decode(manifests io.Reader) ([]*unstructured.Unstructured, error) {
	documents := yaml.NewYAMLOrJSONDecoder(manifests, 4096)
	var objects []*unstructured.Unstructured
	for {
		var o unstructured.Unstructured
		switch err := documents.Decode(&o); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(o.Object) > 0:
			objects = append(objects, &o)
		}
	}
}

func (k *Kube) applyAll(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if err := k.applyOne(ctx, o); err != nil {
			return fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (k *Kube) applyOne(ctx context.Context, o *unstructured.Unstructured) error {
	path, err := k.collection(ctx, o)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = k.Request(ctx, http.MethodPost, path+applied, "application/json", text)
	if err == nil || !strings.Contains(err.Error(), `"reason":"AlreadyExists"`) {
		return err
	}
	_, err = k.Request(ctx, http.MethodPatch, path+"/"+o.GetName()+applied, "application/strategic-merge-patch+json", text)
	if err != nil && strings.Contains(err.Error(), `"reason":"UnsupportedMediaType"`) { // a custom resource has no merge keys
		_, err = k.Request(ctx, http.MethodPatch, path+"/"+o.GetName()+applied, "application/merge-patch+json", text)
	}
	return err
}

// collection returns the path of the collection in which an object is.
func (k *Kube) collection(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	path := "/apis/" + o.GetAPIVersion()
	if !strings.Contains(o.GetAPIVersion(), "/") {
		path = "/api/" + o.GetAPIVersion()
	}
	text, err := k.Request(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return "", err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("GET %s: %w", path, err)
	}
	for _, r := range list.APIResources {
		switch {
		case r.Kind != o.GetKind() || strings.Contains(r.Name, "/"):
		case !r.Namespaced:
			return path + "/" + r.Name, nil
		case o.GetNamespace() == "":
			return path + "/namespaces/default/" + r.Name, nil
		default:
			return path + "/namespaces/" + o.GetNamespace() + "/" + r.Name, nil
		}
	}
	return "", fmt.Errorf("the API server has no kind %s in %s", o.GetKind(), o.GetAPIVersion())
}
