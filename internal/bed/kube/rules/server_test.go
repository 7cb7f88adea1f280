package rules

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

const manifests = "../../../../api/crds"

// resource does with the objects of one kind what an API server does that has its
// definition.
type resource struct {
	kind     kschema.GroupVersionKind
	schema   *schema.Structural
	strategy interface {
		rest.RESTCreateStrategy
		rest.RESTUpdateStrategy
	}
	status rest.RESTUpdateStrategy
}

// serve installs a manifest, which fails the test if an API server would not take it.
func serve(t *testing.T, name string) *resource {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(manifests, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(apiextensions.SchemeGroupVersion), text)
	if err != nil {
		t.Fatal(err)
	}
	crd := object.(*apiextensions.CustomResourceDefinition)
	rest.FillObjectMetaSystemFields(crd)
	strategy := customresourcedefinition.NewStrategy(scheme)
	if err := rest.BeforeCreate(strategy, clusterWide(t), crd); err != nil {
		t.Fatal(err)
	}
	if warnings := strategy.WarningsOnCreate(t.Context(), crd); len(warnings) > 0 {
		t.Fatal(warnings)
	}
	version := crd.Spec.Versions[0].Name
	r := &resource{kind: kschema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}}
	if err := r.install(crd, version); err != nil {
		t.Fatal(err)
	}
	return r
}

// install prepares schema and rules as the API server's handler of custom resources does.
func (r *resource) install(crd *apiextensions.CustomResourceDefinition, version string) error {
	whole, err := apiextensions.GetSchemaForVersion(crd, version)
	if err != nil {
		return err
	}
	subresources, err := apiextensions.GetSubresourcesForVersion(crd, version)
	if err != nil {
		return err
	}
	if r.schema, err = schema.NewStructural(whole.OpenAPIV3Schema); err != nil {
		return err
	}
	all, _, err := validation.NewSchemaValidator(whole.OpenAPIV3Schema)
	if err != nil {
		return err
	}
	ofStatus := whole.OpenAPIV3Schema.Properties["status"]
	status, _, err := validation.NewSchemaValidator(&ofStatus)
	if err != nil {
		return err
	}
	strategy := customresource.NewStrategy(crdserverscheme.NewUnstructuredObjectTyper(), crd.Spec.Scope == apiextensions.NamespaceScoped,
		r.kind, all, status, r.schema, subresources.Status, subresources.Scale, nil)
	r.strategy, r.status = strategy, customresource.NewStatusStrategy(strategy)
	return nil
}

func clusterWide(t *testing.T) context.Context {
	return request.WithNamespace(t.Context(), "")
}

// decode reads what a client sends with strict validation, and what is stored.
func (r *resource) decode(text []byte) (*unstructured.Unstructured, error) {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	if unknown := pruning.PruneWithOptions(u.Object, r.schema, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		return nil, fmt.Errorf("unknown fields %q", unknown)
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, r.schema)
	defaulting.Default(u.Object, r.schema)
	return &u, nil
}

// stored is an object as it comes back from the store. The fields are those beside
// metadata, in JSON.
func (r *resource) stored(t *testing.T, name, fields string) *unstructured.Unstructured {
	t.Helper()
	u, err := r.decode(r.object(name, fields))
	if err != nil {
		t.Fatal(err)
	}
	rest.FillObjectMetaSystemFields(u)
	u.SetResourceVersion("1")
	return u
}

func (r *resource) object(name, fields string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`, r.kind.GroupVersion().String(), r.kind.Kind, name, fields)
}

// create is a POST.
func (r *resource) create(t *testing.T, name, fields string) (*unstructured.Unstructured, error) {
	t.Helper()
	u, err := r.decode(r.object(name, fields))
	if err != nil {
		return nil, err
	}
	rest.FillObjectMetaSystemFields(u)
	if err := rest.BeforeCreate(r.strategy, clusterWide(t), u); err != nil {
		return nil, err
	}
	u.SetResourceVersion("1")
	return r.store(t, u), nil
}

// patch is a merge PATCH of a stored object.
func (r *resource) patch(t *testing.T, old *unstructured.Unstructured, patch string) (*unstructured.Unstructured, error) {
	t.Helper()
	return r.update(t, r.strategy, old, patch)
}

// patchStatus is a merge PATCH of its status subresource.
func (r *resource) patchStatus(t *testing.T, old *unstructured.Unstructured, patch string) (*unstructured.Unstructured, error) {
	t.Helper()
	return r.update(t, r.status, old, patch)
}

func (r *resource) update(t *testing.T, strategy rest.RESTUpdateStrategy, old *unstructured.Unstructured, patch string) (*unstructured.Unstructured, error) {
	t.Helper()
	before, err := old.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	after, err := jsonpatch.MergePatch(before, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	u, err := r.decode(after)
	if err != nil {
		return nil, err
	}
	if err := rest.BeforeUpdate(strategy, clusterWide(t), u, old); err != nil {
		return nil, err
	}
	return r.store(t, u), nil
}

// store writes an object and reads it again.
func (r *resource) store(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	text, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	u, err = r.decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// check compares what was said about an object: each of say, in any order, as FIELD: PART
// OF IT, and nothing else. Without say it is to be taken.
func check(t *testing.T, about string, err error, say ...string) {
	t.Helper()
	var said []string
	var refusal *apierrors.StatusError
	switch {
	case errors.As(err, &refusal):
		for _, cause := range refusal.ErrStatus.Details.Causes {
			// The server adds that to whatever it says before it comes to the rules in CEL.
			if !strings.Contains(cause.Message, "some validation rules were not checked") {
				said = append(said, cause.Field+": "+cause.Message)
			}
		}
	case err != nil:
		said = []string{err.Error()}
	}
	missing := slices.ContainsFunc(say, func(want string) bool {
		field, part, _ := strings.Cut(want, ": ")
		return !slices.ContainsFunc(said, func(text string) bool {
			text, ok := strings.CutPrefix(text, field+": ")
			return ok && strings.Contains(text, part)
		})
	})
	if missing || len(said) != len(say) || (err == nil) != (len(say) == 0) {
		t.Errorf("%.200s:\nsaid %.900q\nwant %q", about, said, say)
	}
}

// value returns a field of an object, nil if it is absent.
func value(t *testing.T, u *unstructured.Unstructured, fields ...string) any {
	t.Helper()
	v, _, err := unstructured.NestedFieldNoCopy(u.Object, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestDefinitions: an API server takes every manifest, with strict validation and
// without a warning.
func TestDefinitions(t *testing.T) {
	paths, err := filepath.Glob(manifests + "/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifest in %s: %v", manifests, err)
	}
	for _, path := range paths {
		serve(t, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
}
