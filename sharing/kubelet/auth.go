package kubelet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"liqo.io/agent/kube"
	"liqo.io/agent/throttle"
)

const (
	// How long the API server's answers hold, as with a kubelet.
	allowedFor = 5 * time.Minute
	deniedFor  = 30 * time.Second
	knownFor   = 2 * time.Minute
	unknownFor = 10 * time.Second
	// rememberedFor is how long a token that was somebody's is asked about at that
	// caller's expense.
	rememberedFor = 2 * time.Hour
	maxAnswers    = 1024
	maxToken      = 16 << 10 // bytes; tokens of service accounts have one to two thousand

	// Questions to the API server a second: about one caller, about tokens that were
	// nobody's yet, and about those of one source.
	callerRate, callerBurst     = 20, 60
	strangerRate, strangerBurst = 20, 60
	sourceRate, sourceBurst     = 4, 20
	maxCallers, maxSources      = 256, 1024 // of whom it is remembered what they used up

	tokenReviews = "/apis/authentication.k8s.io/v1/tokenreviews"
)

// caller is who calls.
type caller struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string]authorizationv1.ExtraValue

	certified bool // by client certificate
}

// bearer is whose a token is; nil: nobody's.
type bearer struct {
	*caller
	until time.Time // when the API server is to be asked again
}

// gate finds out who calls and what they may do. It may be used by any number of
// goroutines.
type gate struct {
	client *kube.Client
	// pool is what client certificates are verified with, nil while it is not known.
	pool     atomic.Pointer[x509.CertPool]
	tokens   *memory[bearer] // by token
	verdicts *memory[bool]   // by caller and permission
	// What we are made to ask the API server is bounded for each proven caller, so
	// that nobody uses up what another one needs. A token that was not seen before may
	// be anybody's, so that is bounded for each source, and altogether.
	callers   *throttle.Buckets[string]
	sources   *throttle.Buckets[netip.Prefix]
	strangers *rate.Limiter
}

func newGate(client *kube.Client, pool *x509.CertPool) *gate {
	g := &gate{client: client, tokens: newMemory[bearer](maxAnswers), verdicts: newMemory[bool](maxAnswers),
		callers:   throttle.New[string](callerRate, callerBurst, maxCallers),
		sources:   throttle.New[netip.Prefix](sourceRate, sourceBurst, maxSources),
		strangers: rate.NewLimiter(strangerRate, strangerBurst)}
	g.pool.Store(pool)
	return g
}

// caller returns who sent a request from source, by client certificate or by bearer
// token.
func (g *gate) caller(ctx context.Context, source netip.Addr, connection *tls.ConnectionState, header http.Header) (*caller, error) {
	if who := g.byCertificate(connection); who != nil {
		return who, nil
	}
	scheme, token, _ := strings.Cut(header.Get("Authorization"), " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxToken {
		return nil, refuse(http.StatusUnauthorized, "Unauthorized")
	}
	return g.byToken(ctx, source, token)
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
	return &caller{certified: true, Name: leaf.Subject.CommonName, Groups: append([]string{"system:authenticated"}, leaf.Subject.Organization...)}
}

func (g *gate) byToken(ctx context.Context, source netip.Addr, token string) (*caller, error) {
	question := sha256.Sum256([]byte(token))
	last, known := g.tokens.get(question)
	if !known || !time.Now().Before(last.until) {
		if !g.mayAsk(last.caller, source) {
			return nil, tooMany("too many unknown tokens")
		}
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
		var verdict authenticationv1.TokenReview
		if err := g.client.Create(ctx, tokenReviews, review, &verdict); err != nil {
			return nil, refuse(http.StatusInternalServerError, "the caller cannot be authenticated: %v", err)
		}
		last = bearer{until: time.Now().Add(unknownFor)}
		life := unknownFor
		if user := verdict.Status.User; verdict.Status.Authenticated && user.Username != "" {
			life = rememberedFor
			last = bearer{until: time.Now().Add(knownFor), caller: &caller{Name: user.Username, UID: user.UID, Groups: user.Groups,
				Extra: make(map[string]authorizationv1.ExtraValue, len(user.Extra))}}
			for key, value := range user.Extra {
				last.Extra[key] = authorizationv1.ExtraValue(value)
			}
		}
		g.tokens.put(question, last, life)
	}
	if last.caller == nil {
		return nil, refuse(http.StatusUnauthorized, "Unauthorized")
	}
	return last.caller, nil
}

// mayAsk reports whether the API server may be asked whose a token is, which was that
// caller's last, if not nil, and comes from source.
func (g *gate) mayAsk(was *caller, source netip.Addr) bool {
	now := time.Now()
	if was != nil {
		return g.callers.Take(was.Name, now) == 0
	}
	return g.sources.Take(throttle.Source(source), now) == 0 && g.strangers.AllowN(now, 1)
}

func tooMany(what string) error {
	return refuse(http.StatusTooManyRequests, "%s; try again in some seconds", what)
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
	asked := authorizationv1.SubjectAccessReviewSpec{User: who.Name, UID: who.UID, Groups: who.Groups, Extra: who.Extra, ResourceAttributes: &what}
	text, err := json.Marshal(asked)
	if err != nil {
		return false, refuse(http.StatusInternalServerError, "the caller cannot be described to the API server: %v", err)
	}
	question := sha256.Sum256(text)
	if allowed, known := g.verdicts.get(question); known {
		return allowed, nil
	}
	if g.callers.Take(who.Name, time.Now()) > 0 {
		return false, tooMany("too many requests of this caller")
	}
	allowed, err := g.client.UserMay(ctx, asked)
	if err != nil {
		return false, refuse(http.StatusInternalServerError, "the permissions of the caller cannot be checked: %v", err)
	}
	life := deniedFor
	if allowed {
		life = allowedFor
	}
	g.verdicts.put(question, allowed, life)
	return allowed, nil
}
