package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"golang.org/x/time/rate"

	"liqo.io/agent/kube"
)

const (
	// How long the API server's answers hold, as with a kubelet.
	allowedFor  = 5 * time.Minute
	deniedFor   = 30 * time.Second
	knownFor    = 2 * time.Minute
	unknownFor  = 10 * time.Second
	maxAnswers  = 1024
	maxToken    = 16 << 10 // bytes; tokens of service accounts have one to two thousand
	reviewRate  = 20       // questions to the API server a second
	reviewBurst = 60

	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// caller is who calls.
type caller struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authorizationv1.ExtraValue
}

// gate finds out who calls and what they may do. It may be used by any number of
// goroutines.
type gate struct {
	client *kube.Client
	// pool is what client certificates are verified with, nil while it is not known.
	pool     atomic.Pointer[x509.CertPool]
	tokens   *memory[*caller] // by token; nil: nobody's
	verdicts *memory[bool]    // by caller and permission
	// questions bounds what strangers make us ask the API server.
	questions *rate.Limiter
}

func newGate(client *kube.Client, pool *x509.CertPool) *gate {
	g := &gate{client: client, tokens: newMemory[*caller](maxAnswers), verdicts: newMemory[bool](maxAnswers),
		questions: rate.NewLimiter(reviewRate, reviewBurst)}
	g.pool.Store(pool)
	return g
}

// caller returns who sent a request, by client certificate or by bearer token.
func (g *gate) caller(ctx context.Context, connection *tls.ConnectionState, header http.Header) (*caller, error) {
	if who := g.byCertificate(connection); who != nil {
		return who, nil
	}
	scheme, token, _ := strings.Cut(header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return nil, refuse(http.StatusUnauthorized, "Unauthorized")
	}
	return g.byToken(ctx, token)
}

// byCertificate returns nil when there is no certificate that proves anything.
func (g *gate) byCertificate(connection *tls.ConnectionState) *caller {
	pool := g.pool.Load()
	if connection == nil || len(connection.PeerCertificates) == 0 || pool == nil {
		return nil
	}
	leaf, between := connection.PeerCertificates[0], x509.NewCertPool()
	for _, c := range connection.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil || leaf.Subject.CommonName == "" {
		return nil
	}
	return &caller{Name: leaf.Subject.CommonName, Groups: append([]string{"system:authenticated"}, leaf.Subject.Organization...)}
}

func (g *gate) byToken(ctx context.Context, token string) (*caller, error) {
	question := sha256.Sum256([]byte(token))
	who, known := g.tokens.get(question)
	if !known {
		if !g.questions.Allow() {
			return nil, refuse(http.StatusTooManyRequests, "there are too many callers to ask the API server about")
		}
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		var verdict authenticationv1.TokenReview
		if err := g.client.Create(ctx, tokenReviews, review, &verdict); err != nil {
			return nil, refuse(http.StatusInternalServerError, "who calls cannot be found out: %v", err)
		}
		life := unknownFor
		if user := verdict.Status.User; verdict.Status.Authenticated && user.Username != "" {
			life = knownFor
			who = &caller{Name: user.Username, UID: user.UID, Groups: user.Groups, Extra: make(map[string]authorizationv1.ExtraValue, len(user.Extra))}
			for key, value := range user.Extra {
				who.Extra[key] = authorizationv1.ExtraValue(value)
			}
		}
		g.tokens.put(question, who, life)
	}
	if who == nil {
		return nil, refuse(http.StatusUnauthorized, "Unauthorized")
	}
	return who, nil
}

// permit returns nil when the caller has the permission.
func (g *gate) permit(ctx context.Context, who *caller, p permission) error {
	for _, subresource := range p.subresources {
		allowed, err := g.allowed(ctx, who, authorizationv1.ResourceAttributes{
			Verb: p.verb, Version: "v1", Resource: "nodes", Subresource: subresource, Name: p.node})
		if err != nil {
			return err
		}
		if allowed {
			return nil
		}
	}
	return refuse(http.StatusForbidden, "Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", who.Name, p.verb, p.subresources)
}

func (g *gate) allowed(ctx context.Context, who *caller, what authorizationv1.ResourceAttributes) (bool, error) {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: who.Name, UID: who.UID, Groups: who.Groups, Extra: who.Extra, ResourceAttributes: &what}}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	text, err := json.Marshal(review.Spec)
	if err != nil {
		return false, refuse(http.StatusInternalServerError, "the caller cannot be told to the API server: %v", err)
	}
	question := sha256.Sum256(text)
	if allowed, known := g.verdicts.get(question); known {
		return allowed, nil
	}
	if !g.questions.Allow() {
		return false, refuse(http.StatusTooManyRequests, "there are too many callers to ask the API server about")
	}
	var verdict authorizationv1.SubjectAccessReview
	if err := g.client.Create(ctx, accessReviews, review, &verdict); err != nil {
		return false, refuse(http.StatusInternalServerError, "whether the caller may do that cannot be found out: %v", err)
	}
	allowed := verdict.Status.Allowed && !verdict.Status.Denied
	life := deniedFor
	if allowed {
		life = allowedFor
	}
	g.verdicts.put(question, allowed, life)
	return allowed, nil
}
