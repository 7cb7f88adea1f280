package offload

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/workload"
)

const (
	podsThere = "/api/v1/namespaces/guest-shop/pods"
	accounts  = "/api/v1/namespaces/shop/serviceaccounts/"
)

// vault is a provider that keeps pods and Secrets, and an API server here that gives tokens.
type vault struct {
	mu       sync.Mutex
	pods     map[string]*corev1.Pod
	secrets  map[string]*corev1.Secret // by name
	version  int
	did      []string // what was done there, in order: "secret NAME", "pod NAME", "delete NAME"
	requests []tokenRequest
	asked    []string // the accounts
	denied   bool     // no token is given
	events   []corev1.Event
	clock    time.Time
	swept    bool // the Secrets there were looked at
}

func newVault() *vault {
	now := time.Now() // to the second, as the ends of tokens are: they have all of their time left when they are given
	return &vault{
		pods: make(map[string]*corev1.Pod), secrets: make(map[string]*corev1.Secret),
		clock: now.Add(-time.Duration(now.Nanosecond())),
	}
}

func (v *vault) now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.clock
}

// local returns the API server here, with pods.
func (v *vault) local(pods ...*corev1.Pod) *localServer {
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: workload.RootCA, ResourceVersion: "1"}, Data: map[string]string{"ca.crt": "CA"}}
	return &localServer{
		namespaces: []string{"shop"}, enabled: true, tokens: true, pods: slices.Clone(pods), answers: v.answer,
		objects: map[string]any{"/api/v1/namespaces/shop/configmaps/" + workload.RootCA: ca}, config: func(c *Config) { c.Now = v.now },
	}
}

// answer gives tokens, and takes events down.
func (v *vault) answer(w http.ResponseWriter, at string, body []byte) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if strings.HasSuffix(at, "/events") {
		var e corev1.Event
		if err := json.Unmarshal(body, &e); err != nil {
			panic(err)
		}
		v.events = append(v.events, e)
		return false
	}
	if !strings.HasPrefix(at, accounts) {
		return false
	}
	w.Header().Set("Content-Type", "application/json")
	if v.denied {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","message":"not for you","code":403}`)
		return true
	}
	var asked tokenRequest
	if err := json.Unmarshal(body, &asked); err != nil {
		panic(err)
	}
	v.requests, v.asked = append(v.requests, asked), append(v.asked, path.Base(path.Dir(at)))
	ends := v.clock.Add(time.Duration(asked.Spec.ExpirationSeconds) * time.Second)
	claims := fmt.Sprintf(`{"exp":%d,"n":%d,"kubernetes.io":{"pod":{"uid":%q}}}`, ends.Unix(), len(v.requests), asked.Spec.BoundObjectRef.UID)
	fmt.Fprintf(w, `{"status":{"token":"a.%s.c","expirationTimestamp":%q}}`, base64.RawURLEncoding.EncodeToString([]byte(claims)), ends.UTC().Format(time.RFC3339))
	return true
}

// ServeHTTP is the provider.
func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	v.mu.Lock()
	name, dir := path.Base(r.URL.Path), path.Dir(r.URL.Path)
	switch {
	case r.Method == http.MethodPost && r.URL.Path == podsThere:
		pod := new(corev1.Pod)
		if err := json.Unmarshal(body, pod); err != nil {
			panic(err)
		}
		pod.UID = "their-" + pod.UID
		v.version++
		pod.ResourceVersion = strconv.Itoa(v.version)
		v.pods[pod.Name], v.did = pod, append(v.did, "pod "+pod.Name)
		v.write(w, pod)
		return
	case r.Method == http.MethodPatch && dir == secretsThere:
		secret := new(corev1.Secret)
		if err := json.Unmarshal(body, secret); err != nil {
			panic(err)
		}
		v.version++
		secret.ResourceVersion = strconv.Itoa(v.version)
		v.secrets[name], v.did = secret, append(v.did, "secret "+name)
		v.write(w, secret)
		return
	case r.Method == http.MethodGet && dir == secretsThere && v.secrets[name] != nil:
		v.write(w, v.secrets[name])
		return
	case r.Method == http.MethodGet && dir == podsThere && v.pods[name] != nil:
		v.write(w, v.pods[name])
		return
	case r.Method == http.MethodDelete:
		delete(v.secrets, name)
		v.did = append(v.did, "delete "+name)
	case r.Method == http.MethodGet && (dir == secretsThere || dir == podsThere):
		v.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		return
	}
	var items []any
	switch r.URL.Path {
	case podsThere:
		for _, pod := range v.pods {
			items = append(items, pod)
		}
	case secretsThere:
		for _, secret := range v.secrets {
			items = append(items, secret)
		}
	case servicesThere:
		v.swept = true
	}
	v.mu.Unlock()
	listOrHang(w, r, items)
}

// write answers with an object, and lets v.mu go.
func (v *vault) write(w http.ResponseWriter, o any) {
	text, err := json.Marshal(o)
	v.mu.Unlock()
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// counts returns how many tokens were asked for, and what was done at the provider with a Secret.
func (v *vault) counts(secret string) (asked, sent, deleted int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, what := range v.did {
		switch what {
		case "secret " + secret:
			sent++
		case "delete " + secret:
			deleted++
		}
	}
	return len(v.requests), sent, deleted
}

// await waits until so many tokens were asked for, and the Secret sent and deleted so often.
func (v *vault) await(t *testing.T, what, secret string, asked, sent, deleted int) {
	t.Helper()
	bedtest.Within(t, what, func() error {
		a, s, d := v.counts(secret)
		if a != asked || s != sent || d != deleted {
			return fmt.Errorf("%d tokens were asked for, and the Secret was sent %d times and deleted %d times, want %d, %d and %d", a, s, d, asked, sent, deleted)
		}
		return nil
	})
}

// tell has the controller know of the pods at the provider: the watch of this one says nothing. By then its first look at what
// is there is over, which would have what is deleted meanwhile deleted twice.
func (v *vault) tell(t *testing.T, rn *remoteNamespace) {
	t.Helper()
	bedtest.Within(t, "the Secrets there were looked at", func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if !v.swept {
			return errors.New("they were not")
		}
		return nil
	})
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, pod := range v.pods {
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		c := new(workload.Copy)
		if err := json.Unmarshal(text, c); err != nil {
			t.Fatal(err)
		}
		if err := rn.pods.Told().Add(c); err != nil {
			t.Fatal(err)
		}
	}
}

// withToken returns a pod with the volume that admission adds.
func withToken(name string) *corev1.Pod {
	pod := podHere(name)
	pod.Spec.ServiceAccountName = "robot"
	seconds := int64(3607)
	pod.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-abcde", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: workload.RootCA}}},
	}}}}}
	return pod
}

// TestTokensOfPods: the life of the tokens of a pod at a provider.
func TestTokensOfPods(t *testing.T) {
	v := newVault()
	pod := withToken("web")
	local := v.local(pod)
	n := join(t, local, &far{}, v.ServeHTTP)
	name := workload.TokenSecret(pod.UID)
	bedtest.Within(t, "the pod is at the provider", func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		if v.pods["web"] == nil {
			return fmt.Errorf("there was %v", v.did)
		}
		return nil
	})
	pc, rn := n.opened(t)
	v.tell(t, rn)
	v.mu.Lock()
	if want := []string{"secret " + name, "pod web"}; !slices.Equal(v.did, want) {
		t.Errorf("done was %v, want %v", v.did, want)
	}
	asked := v.requests[0].Spec
	if v.asked[0] != "robot" || asked.BoundObjectRef.Kind != "Pod" || asked.BoundObjectRef.Name != "web" || asked.BoundObjectRef.UID != pod.UID || asked.ExpirationSeconds != 3600 || asked.Audiences != nil {
		t.Errorf("asked was %s for %+v", v.asked[0], asked)
	}
	if s := v.secrets[name]; string(s.Data["ca.crt"]) != "CA" || len(s.Data) != 2 {
		t.Errorf("sent was %v", s)
	}
	if m := v.pods["web"].Spec.Volumes[0].Projected.Sources; m[0].Secret == nil || m[0].Secret.Name != name {
		t.Errorf("the pod mounts %+v", m)
	}
	v.mu.Unlock()

	ref := key{aToken, "shop", "web"}
	reconcile := func(pc *controller) time.Duration {
		t.Helper()
		again, err := pc.reconcileTokens(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	if again := reconcile(pc); again < 39*time.Minute || again > 45*time.Minute {
		t.Errorf("they are renewed after %v of an hour", again)
	}
	if due := pc.due(pod, v.clock.Add(time.Hour)); due != due.Round(0) {
		t.Errorf("they are renewed at %v, which a clock that is set does not reach", due)
	}
	v.await(t, "nothing is renewed early", name, 1, 1, 0)
	pass := func(d time.Duration) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.clock = v.clock.Add(d)
	}
	pass(46 * time.Minute)
	if again := reconcile(pc); again < 39*time.Minute || again > 45*time.Minute {
		t.Errorf("they are renewed again after %v", again)
	}
	v.await(t, "they are renewed", name, 2, 2, 0)

	// What somebody does at the provider.
	sweep := func() {
		t.Helper()
		if _, err := pc.sweep(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		reconcile(pc)
	}
	sweep()
	v.await(t, "what nobody changed is not sent again", name, 2, 2, 0)
	v.mu.Lock()
	v.secrets[name].ResourceVersion, v.secrets[name].Data = "999", map[string][]byte{"token-0": []byte("evil")}
	v.mu.Unlock()
	sweep()
	v.await(t, "what somebody edited is made anew", name, 3, 3, 0)
	v.mu.Lock()
	if string(v.secrets[name].Data["ca.crt"]) != "CA" {
		t.Errorf("there is %v", v.secrets[name].Data)
	}
	delete(v.secrets, name)
	v.secrets["liqo-tokens-lost"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tokens-lost", ResourceVersion: "1", Annotations: map[string]string{workload.AnnotationOriginUID: "lost"}}}
	v.mu.Unlock()
	sweep()
	v.await(t, "what somebody deleted is made anew", name, 4, 4, 0)
	v.await(t, "those of a pod of an earlier run are deleted", "liqo-tokens-lost", 4, 0, 1)

	// Another agent, as after a restart, takes over what is there, and renews it in time. The first one is at an end: what is
	// still in its queue would be due by then, too.
	pc.cancel()
	<-pc.done
	pass(10 * time.Minute)
	again := join(t, v.local(pod), &far{}, v.ServeHTTP)
	pc2, _ := again.opened(t)
	if rest := reconcile(pc2); rest < 30*time.Minute || rest > 38*time.Minute {
		t.Errorf("with 50 minutes left, they are renewed after %v", rest)
	}
	v.await(t, "an agent that starts asks for nothing", name, 4, 4, 0)
	pass(40 * time.Minute)
	reconcile(pc2)
	v.await(t, "and renews them", name, 5, 5, 0)

	// The pod ends.
	pc2.pods.Deleted("shop", "web", pod.UID)
	bedtest.Within(t, "the Secret is deleted", func() error {
		if _, _, deleted := v.counts(name); deleted == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	for agent, issued := range map[*neighbours]uint64{n: 4, again: 1} {
		if stats := agent.Stats(); stats.TokensIssued != issued || stats.TokensRefused != 0 {
			t.Errorf("counted are %+v, want %d tokens", stats, issued)
		}
	}
}

// TestSecretNamedLikeTokens: a person's Secret whose name begins like those of tokens is copied as any other, and stays.
func TestSecretNamedLikeTokens(t *testing.T) {
	const name = "liqo-tokens-mine"
	v := newVault()
	pod := podHere("web")
	pod.Spec.Volumes = []corev1.Volume{{Name: "mine", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	local := v.local(pod)
	local.objects["/api/v1/namespaces/shop/secrets/"+name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "uid-mine", ResourceVersion: "1"}}
	n := join(t, local, &far{}, v.ServeHTTP)
	v.await(t, "it is sent", name, 0, 1, 0)
	pc, _ := n.opened(t)
	if _, err := pc.sweep(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	v.await(t, "it stays as it is", name, 0, 1, 0)
}

// TestTokensRefused: a pod waits while the API server gives no token for it, and says why.
func TestTokensRefused(t *testing.T) {
	v := newVault()
	v.denied = true
	pod := withToken("web")
	local := v.local(pod)
	n := join(t, local, &far{}, v.ServeHTTP)
	bedtest.Within(t, "the pod says why it waits", func() error {
		if all := strings.Join(local.statuses("web"), " "); !strings.Contains(all, workload.ReasonNoToken) || !strings.Contains(all, "not for you") {
			return errors.New(all)
		}
		return nil
	})
	if _, sent, _ := v.counts(workload.TokenSecret(pod.UID)); sent > 0 || n.Stats().TokensRefused == 0 || v.pods["web"] != nil {
		t.Errorf("the Secret was sent %d times; %+v", sent, n.Stats())
	}
	v.mu.Lock()
	v.denied = false
	v.clock = v.clock.Add(time.Hour)
	v.mu.Unlock()
	n.controllers()[0].queue.Add(podKey(pod))
	v.await(t, "it is tried again", workload.TokenSecret(pod.UID), 1, 1, 0)
}

// TestWithoutLabel: pods of a namespace that does not say so have no token, and one of each owner says so. With the label
// gone, tokens are taken back; switched off, the same.
func TestWithoutLabel(t *testing.T) {
	for name, reason := range map[string]string{"no label": "", "switched off": `sharing.tokens is "off"`} {
		t.Run(name, func(t *testing.T) {
			v := newVault()
			yes := true
			pods := []*corev1.Pod{withToken("a"), withToken("b"), withToken("c"), podHere("plain")}
			for _, pod := range pods[:2] {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "owner", Controller: &yes}}
			}
			local := v.local(pods...)
			local.tokens = reason != ""
			local.config = func(c *Config) { c.Tokens = func(string) string { return reason } }
			n := join(t, local, &far{}, v.ServeHTTP)
			said := func() []string {
				v.mu.Lock()
				defer v.mu.Unlock()
				var out []string
				for _, e := range v.events {
					want := "liqo.io/tokens=true"
					if reason != "" {
						want = reason
					}
					if e.Reason != workload.ReasonNoToken || e.Type != corev1.EventTypeNormal || !strings.Contains(e.Message, want) {
						t.Errorf("%s: %s %s", e.InvolvedObject.Name, e.Reason, e.Message)
					}
					out = append(out, e.InvolvedObject.Name)
				}
				slices.Sort(out)
				return out
			}
			bedtest.Within(t, "the pods run, and two events say why without a token", func() error {
				v.mu.Lock()
				made := len(v.pods)
				v.mu.Unlock()
				if got := said(); made < 4 || len(got) != 2 || got[1] != "c" {
					return fmt.Errorf("%d pods, events about %v", made, got)
				}
				return nil
			})
			if asked, _, _ := v.counts(""); asked > 0 || len(v.secrets) > 0 {
				t.Errorf("%d tokens were asked for; %v", asked, v.secrets)
			}
			for _, pod := range v.pods {
				if len(pod.Spec.Volumes) > 0 {
					t.Errorf("%s mounts %v", pod.Name, pod.Spec.Volumes)
				}
			}
			// The label comes later: pods that run have nothing of it.
			if reason != "" {
				return
			}
			pc, rn := n.opened(t)
			v.tell(t, rn)
			ns := &metadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop", ResourceVersion: "9", Labels: map[string]string{workload.LabelEnabled: "true", workload.LabelTokens: "true"}}}
			pc.s.namespaces.Wrote(ns)
			if why := pc.tokensOf("shop"); why != "" {
				t.Fatal(why)
			}
			for _, pod := range pods {
				if _, err := pc.reconcilePod(t.Context(), podKey(pod)); err != nil {
					t.Fatal(err)
				}
				if _, err := pc.reconcileTokens(t.Context(), key{aToken, "shop", pod.Name}); err != nil {
					t.Fatal(err)
				}
			}
			if asked, _, _ := v.counts(""); asked > 0 {
				t.Errorf("%d tokens were asked for", asked)
			}
		})
	}
}

// TestTokensTakenBack: when the namespace loses its label, the Secret at the provider is deleted.
func TestTokensTakenBack(t *testing.T) {
	v := newVault()
	pod := withToken("web")
	n := join(t, v.local(pod), &far{}, v.ServeHTTP)
	name := workload.TokenSecret(pod.UID)
	v.await(t, "it has a token", name, 1, 1, 0)
	pc, rn := n.opened(t)
	v.tell(t, rn)
	pc.s.namespaces.Wrote(&metadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop", ResourceVersion: "9", Labels: map[string]string{workload.LabelEnabled: "true"}}})
	v.await(t, "and has it no more", name, 1, 1, 1)
}
