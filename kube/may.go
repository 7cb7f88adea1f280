package kube

import (
	"context"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
)

const reviews = "/apis/authorization.k8s.io/v1/"

// Access is something that a user may do or not, as the attributes of an
// authorization.k8s.io/v1 SelfSubjectAccessReview.
type Access struct {
	Namespace   string `json:"namespace,omitempty"`
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name,omitempty"`
}

// May asks the API server whether the client's user may do something. Everybody may ask
// that about themselves.
func (c *Client) May(ctx context.Context, what Access) (bool, error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": what},
	}
	var answer struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	err := c.Create(ctx, reviews+"selfsubjectaccessreviews", review, &answer)
	return answer.Status.Allowed, err
}

// UserMay asks the API server whether a user may do something.
func (c *Client) UserMay(ctx context.Context, what authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	review := authorizationv1.SubjectAccessReview{Spec: what}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	var answer authorizationv1.SubjectAccessReview
	err := c.Create(ctx, reviews+"subjectaccessreviews", review, &answer)
	return answer.Status.Allowed && !answer.Status.Denied, err
}

// Granted is something that roles allow, as the resource rules of an
// authorization.k8s.io/v1 SelfSubjectRulesReview. "*" stands for everything.
type Granted struct {
	Verbs     []string `json:"verbs"`
	Groups    []string `json:"apiGroups"`
	Resources []string `json:"resources"` // a subresource as "pods/log", or "*/log"
	Names     []string `json:"resourceNames"`
}

// Allows reports whether that allows something in the namespace that it was asked for.
func (g Granted) Allows(what Access) bool {
	resource, every := what.Resource, "*"
	if what.Subresource != "" {
		resource, every = resource+"/"+what.Subresource, "*/"+what.Subresource
	}
	has := func(list []string, value string) bool {
		return slices.Contains(list, value) || slices.Contains(list, "*")
	}
	return has(g.Verbs, what.Verb) && has(g.Groups, what.Group) && (has(g.Resources, resource) || slices.Contains(g.Resources, every)) &&
		(len(g.Names) == 0 || slices.Contains(g.Names, what.Name))
}

// Granted asks the API server for what the client's user may do in a namespace. It may do
// more than that: not every authorizer can tell.
func (c *Client) Granted(ctx context.Context, namespace string) ([]Granted, error) {
	review := map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
		"spec": map[string]any{"namespace": namespace},
	}
	var answer struct {
		Status struct {
			ResourceRules []Granted `json:"resourceRules"`
		} `json:"status"`
	}
	err := c.Create(ctx, reviews+"selfsubjectrulesreviews", review, &answer)
	return answer.Status.ResourceRules, err
}
