package kube

import "context"

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
	err := c.Create(ctx, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, &answer)
	return answer.Status.Allowed, err
}
