package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer/text"
)

const (
	// tokenTimeout bounds the wait for the token. What fills it in is the controller
	// manager, which is there a little later than the API server.
	tokenTimeout = 30 * time.Second
	// effectTimeout bounds the time from the writing of the roles until the API server
	// goes by them, which it does a moment later, or on a small box that starts up a good
	// while later.
	effectTimeout = 30 * time.Second
	firstPause    = 20 * time.Millisecond
	longestPause  = time.Second
)

// Result is what became of something.
type Result string

// The results of [Apply], [WriteKubeconfig], [Delete] and [RemoveKubeconfig].
const (
	Created   Result = "created"
	Changed   Result = "changed"
	Unchanged Result = "unchanged"
	Deleted   Result = "deleted"
	Missing   Result = "missing" // it was not there to be deleted
	Kept      Result = "kept"    // somebody else's, and left alone
	// Unsupported: the API server is too old to have such a thing.
	Unsupported Result = "unsupported"
)

// Change is what became of one object, or of a file.
type Change struct {
	Kind      string `json:"kind"` // "File" for a file
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"` // a path for a file
	Result    Result `json:"result"`
}

// Unconfined reports whether it is the policy that confines the agent's user, and the
// API server cannot have it.
func (c Change) Unconfined() bool { return c.Kind == validatingPolicy && c.Result == Unsupported }

// ErrConflict: somebody else manages a part of an object, and says something else.
var ErrConflict = errors.New("somebody else manages it")

// identified is the part of an object that tells whether a write changed it.
type identified struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
}

// Apply makes the objects of [Manifest] exist as they are there, by server-side apply,
// with a client that has an administrator's rights. What is as it should be is left
// alone, and so is the role for Liqo if it is not asked for. Of options, Namespace, Liqo and Force count. Without Force, a field that somebody else manages with another value is an
// error that wraps ErrConflict. It returns what it did, also together with an error.
func Apply(ctx context.Context, client *kube.Client, options Options) ([]Change, error) {
	if err := checkNamespace(options.Namespace); err != nil {
		return nil, err
	}
	var done []Change
	for _, o := range wanted(options.Namespace, options.Liqo) {
		result, err := applyServed(ctx, client, o, options.Force)
		if err != nil {
			return done, o.explain(err)
		}
		done = append(done, o.change(result))
	}
	return done, nil
}

// applyServed applies an object in the first of its versions that the API server has.
func applyServed(ctx context.Context, client *kube.Client, o object, force bool) (Result, error) {
	for _, version := range slices.Insert(slices.Clone(o.elder), 0, o.apiVersion) {
		o.apiVersion = version
		if result, err := applyOne(ctx, client, o, force); !o.optional || !apierrors.IsNotFound(err) {
			return result, err
		}
	}
	return Unsupported, nil
}

func applyOne(ctx context.Context, client *kube.Client, o object, force bool) (Result, error) {
	var before, after identified
	err := client.Get(ctx, o.path(), &before)
	there := err == nil
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", err
	case there && o.bare:
		return Unchanged, nil // that it is there is all we want of it
	}
	// What an agent made for itself while it had the rights to becomes the administrator's.
	force = force || before.Metadata.Labels[api.LabelManagedBy] == api.ManagedByAgent
	if err := client.Apply(ctx, o.path(), Manager, force, o.body(), &after); err != nil {
		return "", err
	}
	switch {
	case !there:
		return Created, nil
	case before.Metadata.ResourceVersion == after.Metadata.ResourceVersion:
		return Unchanged, nil
	}
	return Changed, nil
}

func (o object) change(result Result) Change {
	return Change{Kind: o.kind, Namespace: o.namespace, Name: o.name, Result: result}
}

// title names the object for people.
func (o object) title() string {
	if o.namespace != "" {
		return o.kind + " " + o.namespace + "/" + o.name
	}
	return o.kind + " " + o.name
}

// explain says what to do about an error that the API server gave for an object.
func (o object) explain(err error) error {
	switch {
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: %w, and says something else: %w", o.title(), ErrConflict, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: the kubeconfig has not the rights of an administrator: %w", o.title(), err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the API server does not accept the credentials of the kubeconfig: %w", o.title(), err)
	}
	return fmt.Errorf("%s: %w", o.title(), err)
}

// Token waits for the token of the Secret that [Apply] made, half a minute at most.
func Token(ctx context.Context, client *kube.Client, namespace string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
	defer cancel()
	path := "/api/v1/namespaces/" + namespace + "/secrets/" + TokenName
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		var found struct {
			Type string            `json:"type"`
			Data map[string][]byte `json:"data"`
		}
		err := client.Get(ctx, path, &found)
		if token := string(found.Data["token"]); err == nil && token != "" {
			if owner(token) != ServiceAccount(namespace) {
				return "", fmt.Errorf("the Secret %s/%s holds the token of another user; delete it, and try again", namespace, TokenName)
			}
			return token, nil
		}
		if ctx.Err() == nil && err != nil {
			return "", fmt.Errorf("token of the agent: %w", err)
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("nothing has filled in Secret %s/%s, which the controller manager of the cluster is to do; is it running? %w",
				namespace, TokenName, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Await waits until the API server goes by the roles: until the user of client, the
// agent's, lacks nothing. That takes it a moment, and thirty seconds are the most. The
// error names what is lacking then.
func Await(ctx context.Context, client *kube.Client, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, effectTimeout)
	defer cancel()
	needed := needs(Rules(namespace))
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		gaps, err := gapsOf(ctx, client, needed)
		if err == nil {
			if len(gaps) == 0 {
				return nil
			}
			needed = gaps // what is granted once stays
		} else if !apierrors.IsUnauthorized(err) || ctx.Err() != nil {
			return fmt.Errorf("try the agent's kubeconfig: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the agent's kubeconfig still may not %s, after %v: %w", list(needed), effectTimeout, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// list names the first few gaps.
func list(gaps []Gap) string {
	var texts []string
	for _, g := range gaps {
		texts = append(texts, g.String())
	}
	return text.List(texts, 3, ", ")
}

// Delete takes away what [Apply] made, the bindings first, with an administrator's
// client. The namespace stays: it holds more than this. An object that does not carry
// the label of Apply's is somebody else's, and kept. It returns what it did, also
// together with an error.
func Delete(ctx context.Context, client *kube.Client, namespace string) ([]Change, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}
	var done []Change
	for _, o := range slices.Backward(wanted(namespace, true)) {
		if o.bare {
			continue
		}
		result, err := deleteServed(ctx, client, o)
		if err != nil {
			return done, o.explain(err)
		}
		if result == Missing && o.name == liqoName {
			continue // few have it
		}
		done = append(done, o.change(result))
	}
	return done, nil
}

// deleteServed deletes an object in the first of its versions in which it is there.
func deleteServed(ctx context.Context, client *kube.Client, o object) (Result, error) {
	result, err := deleteOne(ctx, client, o)
	for _, version := range o.elder {
		if result != Missing || err != nil {
			break
		}
		o.apiVersion = version
		result, err = deleteOne(ctx, client, o)
	}
	return result, err
}

func deleteOne(ctx context.Context, client *kube.Client, o object) (Result, error) {
	var found identified
	err := client.Get(ctx, o.path(), &found)
	switch {
	case apierrors.IsNotFound(err):
		return Missing, nil
	case err != nil:
		return "", err
	case found.Metadata.Labels[api.LabelManagedBy] != api.ManagedByAdministrator:
		return Kept, nil
	}
	err = client.Delete(ctx, o.path(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.Metadata.UID}})
	if apierrors.IsNotFound(err) {
		return Missing, nil
	}
	return Deleted, err
}
