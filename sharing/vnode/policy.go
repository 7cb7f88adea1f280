package vnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/sharing/workload"
)

// errNoWebhook: there is nothing that could give pods their toleration.
var errNoWebhook = errors.New("the API server has no MutatingAdmissionPolicies (Kubernetes 1.36 has), and the agent's webhook does not listen: " +
	"pods run on virtual nodes only if they tolerate the taint " + workload.TaintNotAllowed + " by themselves")

// keeping is one object that policy keeps.
type keeping struct {
	path  string // of the collection
	cache *kube.Cache[*manifest]
	want  func() *manifest // nil while nobody knows
	// extra, if not nil, reports whether it is to be there at all, and whether that is known yet.
	// Without it, only pods with claims are not let on nodes.
	extra func() (is, known bool)
}

func (k keeping) object() string { return k.path + "/" + OffloadingName }

// policy keeps what gives pods the toleration, as long as there are nodes or are
// to be. Its goroutine is that of run.
type policy struct {
	*session
	again chan struct{} // capacity 1

	done    chan struct{} // closed after the first attempt
	attempt sync.Once
	failing string    // what was logged; of run alone
	written time.Time // when something was last; of run alone
}

// takenUp is how long API servers may take until they go by a policy that is new:
// they look every second. A pod that comes before that is never let on a node.
const takenUp = 2 * time.Second

func newPolicy(s *session) *policy {
	return &policy{session: s, again: make(chan struct{}, 1), done: make(chan struct{})}
}

// wake has the objects looked at again.
func (p *policy) wake() { work.Wake(p.again) }

// tried reports whether it was tried to have the objects, so that the first pods
// that see a node may be let on it.
func (p *policy) tried() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// run keeps the objects until ctx ends.
func (p *policy) run(ctx context.Context) {
	var following sync.WaitGroup
	defer following.Wait()
	var kept []keeping
	backoff, failures := work.Backoff{First: retryFirst, Max: retryMax}, 0
	for ctx.Err() == nil {
		err := error(nil)
		if kept == nil {
			if kept, err = p.choose(ctx); err == nil {
				p.follow(ctx, &following, kept)
			}
		}
		wanted, unwanted := p.needed()
		if err == nil {
			err = p.keep(ctx, kept, wanted, unwanted)
		}
		if ctx.Err() != nil {
			return
		}
		var retry <-chan time.Time
		fresh := takenUp - p.cfg.Now().Sub(p.written)
		switch {
		case !wanted || errors.Is(err, errUnknown):
		case !p.written.IsZero() && fresh > 0 && !p.tried():
			retry = time.After(fresh)
		default:
			p.attempt.Do(func() {
				close(p.done)
				p.Nodes.mu.Lock()
				p.lookAtAll()
				p.Nodes.mu.Unlock()
			})
		}
		if p.report(err); err != nil {
			failures++
			retry = time.After(max(backoff.Pause(failures), work.RetryAfter(err)))
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
		case <-p.again:
		case <-retry:
		}
	}
}

// report logs what goes wrong, once.
func (p *policy) report(err error) {
	text := ""
	if err != nil && !errors.Is(err, errUnknown) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		text = err.Error()
		if text != p.failing {
			p.cfg.Logger.Warn("pods of enabled namespaces cannot run on virtual nodes at the moment; trying again", "error", err)
		}
	}
	p.failing = text
}

// needed reports whether the objects are to be there, or to go. While not everybody
// was heard it may be neither.
func (p *policy) needed() (wanted, unwanted bool) {
	p.Nodes.mu.Lock()
	defer p.Nodes.mu.Unlock()
	for _, r := range p.records {
		if r.want.Wanted && r.want.Offer != nil {
			return true, false
		}
	}
	return slices.ContainsFunc(p.nodes.All(), func(n *corev1.Node) bool { return whose(n) != "" }), p.settled
}

// choose finds out what the API server has.
func (p *policy) choose(ctx context.Context) ([]keeping, error) {
	for _, version := range []string{"v1", "v1beta1"} {
		var served metav1.APIResourceList
		err := p.client.Get(ctx, admissionPath+version, &served)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == pluralPolicies }) {
			continue
		}
		// Policies cannot look at claims: of pods with some, the agent is asked.
		claims := p.webhook(true)
		claims.extra = p.cfg.Claims
		if claims.extra == nil {
			claims.extra = func() (bool, bool) { return false, true }
		}
		return []keeping{
			p.keeping(version, pluralPolicies, func() *manifest { return policyManifest(version) }),
			p.keeping(version, pluralBindings, func() *manifest { return bindingManifest(version) }),
			claims,
		}, nil
	}
	return []keeping{p.webhook(false)}, nil
}

// webhook keeps the configuration of the webhook, for pods with claims only if so said.
func (p *policy) webhook(claims bool) keeping {
	return p.keeping("v1", pluralWebhooks, func() *manifest {
		if p.cfg.Webhook == nil {
			return nil
		}
		return webhookManifest(p.cfg.Webhook(claims))
	})
}

func (p *policy) keeping(version, plural string, want func() *manifest) keeping {
	return keeping{
		path: admissionPath + version + "/" + plural,
		want: want,
		cache: kube.NewCache(kube.Kind[*manifest]{
			Fresh:   func() *manifest { return &manifest{} },
			Trim:    func(m *manifest) { m.ManagedFields = nil },
			Changed: func(_, _ *manifest) { p.wake() },
		}),
	}
}

// follow follows the objects, and wakes once they are known.
func (p *policy) follow(ctx context.Context, following *sync.WaitGroup, kept []keeping) {
	for _, k := range kept {
		following.Go(func() {
			k.cache.Follow(ctx, p.client, kube.Query{Path: k.path, Fields: "metadata.name=" + OffloadingName})
		})
		following.Go(func() {
			if await(ctx, k.cache.Synced()) {
				p.wake()
			}
		})
	}
}

// errUnknown: it is not known yet whether an object is there.
var errUnknown = errors.New("the API server has not said yet what is there")

// keep has the objects as they are to be. It writes only what differs.
func (p *policy) keep(ctx context.Context, kept []keeping, wanted, unwanted bool) error {
	var errs []error
	for _, k := range kept {
		wanted, unwanted := wanted, unwanted
		if k.extra != nil {
			switch is, known := k.extra(); {
			case !known:
				continue // what is there stays
			case !is:
				wanted, unwanted = false, wanted || unwanted
			}
		}
		select {
		case <-k.cache.Synced():
		default:
			if wanted {
				errs = append(errs, errUnknown)
			}
			continue
		}
		found := k.cache.Get("", OffloadingName)
		switch {
		case wanted:
			errs = append(errs, p.ensure(ctx, k, found))
		case unwanted && found != nil && found.Labels[api.LabelManagedBy] == api.ManagedByAgent:
			errs = append(errs, ignoreGone(p.client.Delete(ctx, k.object(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}})))
		}
	}
	return errors.Join(errs...)
}

func (p *policy) ensure(ctx context.Context, k keeping, found *manifest) error {
	want := k.want()
	if want == nil {
		return errNoWebhook
	}
	if found != nil && found.shows(want) {
		return nil
	}
	return advise(k, p.put(ctx, k, want, found))
}

// put makes an object, or one that is there already, as wanted.
func (p *policy) put(ctx context.Context, k keeping, want, found *manifest) error {
	if found == nil {
		p.written = p.cfg.Now()
		return p.client.Create(ctx, k.path, want, nil)
	}
	p.written = p.cfg.Now()
	var got manifest
	if err := p.client.Update(ctx, k.object(), want.over(found), &got); err != nil {
		return err
	}
	if !got.shows(want) {
		return fmt.Errorf("%s: %w", k.object(), errUnchanged)
	}
	return nil
}

// advise says what to do when the agent may not write an object: whoever can write
// policies can do anything, so that is the administrator's.
func advise(k keeping, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%s is missing or of another version, and only an administrator can write it: run `sudo liqo-agent rbac --apply`: %w", k.object(), err)
}
