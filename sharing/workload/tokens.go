package workload

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/peer/text"
)

// APIServer is the name by which a pod at a provider reaches the API server of its own cluster,
// and for which its certificate is valid in every cluster.
const APIServer = "kubernetes.default.svc"

// APIPort is the TCP port of it, that of the Service kubernetes.
const APIPort = 443

// LongestToken is the longest lifetime of a token. A longer one would only live on after the pod has
// another, because it is renewed once a day anyway.
const LongestToken = 24 * time.Hour

const (
	// minTokenSeconds is the least that API servers give.
	minTokenSeconds = 600
	maxTokenSeconds = int64(LongestToken / time.Second)
	// extended is the lifetime of the tokens that admission mounts. API servers take it as a sign to
	// give one that is valid for a year, for programs that do not read it again.
	extended = 3607
)

const (
	// maxTokens is how many different tokens a pod can have.
	maxTokens = 16
	// maxToken is the longest token that is read, in bytes. Usual ones have one KB.
	maxToken = 64 << 10

	tokenSecretPrefix = "liqo-tokens-"
	caKey             = "ca.crt"
	hostEnv           = "KUBERNETES_SERVICE_HOST"
)

// Token is a service account token that a pod mounts.
type Token struct {
	Audience string // "" for that of the API server
	Seconds  int64  // for how long it is valid
}

// Tokens returns the tokens that a pod mounts, each once, in the order of its volumes.
func Tokens(spec *corev1.PodSpec) []Token {
	var out []Token
	for _, v := range spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, p := range v.Projected.Sources {
			if p.ServiceAccountToken == nil {
				continue
			}
			if t := tokenOf(p.ServiceAccountToken); !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

func tokenOf(p *corev1.ServiceAccountTokenProjection) Token {
	seconds := int64(60 * 60) // the default of the API server
	if p.ExpirationSeconds != nil && *p.ExpirationSeconds != extended {
		seconds = min(max(*p.ExpirationSeconds, minTokenSeconds), maxTokenSeconds)
	}
	return Token{Audience: p.Audience, Seconds: seconds}
}

// WantsTokens reports whether a pod of a namespace with [LabelTokens] has a [TokenSecret]: it
// mounts a token, or the CA of its cluster.
func WantsTokens(spec *corev1.PodSpec) bool {
	for _, v := range spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name == RootCA {
			return true
		}
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.ServiceAccountToken != nil || p.ConfigMap != nil && p.ConfigMap.Name == RootCA
		}) {
			return true
		}
	}
	return false
}

// MountsTokens reports whether a provider's copy of a pod was made with a [TokenSecret].
func MountsTokens(theirs *corev1.Pod) bool { return appliedTo(theirs).Tokens }

// LacksToken reports whether a pod would have the token that admission mounts if its namespace
// had [LabelTokens].
func LacksToken(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return tokenVolume(&v) })
}

// TokenSecret is the name of the Secret at a provider with the tokens of a pod, and the CA of its
// cluster.
func TokenSecret(pod types.UID) string { return tokenSecretPrefix + strings.ToLower(string(pod)) }

// IsTokenSecret reports whether a Secret at a provider is one: a copy of a Secret whose name is like that has the UID of the
// Secret, and not of a pod.
func IsTokenSecret(secret metav1.Object) bool {
	return secret.GetName() == TokenSecret(types.UID(secret.GetAnnotations()[AnnotationOriginUID]))
}

func tokenKey(i int) string { return "token-" + strconv.Itoa(i) }

// TokenBody returns the body (JSON) of the apply of a pod's [TokenSecret]: with tokens, in the
// order of [Tokens], and the CA of this cluster (PEM).
func TokenBody(pod *corev1.Pod, in Origin, ca string, tokens []string) ([]byte, *Refusal) {
	data := map[string][]byte{caKey: []byte(ca)}
	for i, token := range tokens {
		data[tokenKey(i)] = []byte(token)
	}
	name := TokenSecret(pod.UID)
	b := bodyOf("Secret", &pod.ObjectMeta, in)
	b.Metadata.Name = name
	return write("Secret", name, &secretBody{body: b, Type: corev1.SecretTypeOpaque, Data: data})
}

// TokenEnds returns when the first of a pod's tokens in a [TokenSecret] ends, false unless all are
// there. The signatures are not checked: the provider may have written anything, and gains no more
// than the pod that it runs loses.
func TokenEnds(pod *corev1.Pod, data map[string][]byte) (first time.Time, ok bool) {
	if len(data[caKey]) == 0 {
		return time.Time{}, false
	}
	for i := range Tokens(&pod.Spec) {
		ends, of, ok := readToken(data[tokenKey(i)])
		if !ok || of != pod.UID {
			return time.Time{}, false
		}
		if first.IsZero() || ends.Before(first) {
			first = ends
		}
	}
	return first, true
}

// readToken returns when a token (RFC 7519) ends, and the pod that it is bound to.
func readToken(token []byte) (ends time.Time, pod types.UID, ok bool) {
	parts := bytes.SplitN(token, []byte("."), 4)
	if len(token) > maxToken || len(parts) != 3 {
		return time.Time{}, "", false
	}
	claims := make([]byte, base64.RawURLEncoding.DecodedLen(len(parts[1])))
	n, err := base64.RawURLEncoding.Decode(claims, parts[1])
	if err != nil {
		return time.Time{}, "", false
	}
	var c struct {
		Exp        int64 `json:"exp"`
		Kubernetes struct {
			Pod struct {
				UID types.UID `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(claims[:n], &c); err != nil || c.Exp <= 0 {
		return time.Time{}, "", false
	}
	return time.Unix(c.Exp, 0), c.Kubernetes.Pod.UID, true
}

// ownToken returns a sentence about a token that the author of a pod mounts, "" for none.
func ownToken(spec *corev1.PodSpec) string {
	for _, v := range spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.ServiceAccountToken != nil }) {
			return fmt.Sprintf("Volume %q has a service account token, which the provider would see: label the namespace %s=true to let it (never in kube-system, nor with sharing.tokens = \"off\"), "+
				"put what the pod needs into a Secret, or %s.", text.Line(v.Name, 63), LabelTokens, stay)
		}
	}
	return ""
}

// mountTokens has a pod mount its [TokenSecret] in place of tokens and the CA of its cluster, and
// reach its API server there. It returns whether the pod mounts any.
func mountTokens(pod *corev1.Pod) (any bool, r *Refusal) {
	tokens, name := Tokens(&pod.Spec), TokenSecret(pod.UID)
	if len(tokens) > maxTokens {
		return false, notOffloadable(fmt.Sprintf("The pod mounts %d different service account tokens, and providers take %d: mount fewer, or %s.", len(tokens), maxTokens, stay))
	}
	any = WantsTokens(&pod.Spec)
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if cm := v.ConfigMap; cm != nil && cm.Name == RootCA {
			v.ConfigMap, v.Secret = nil, &corev1.SecretVolumeSource{SecretName: name, Items: caItems(cm.Items), DefaultMode: cm.DefaultMode}
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			switch p := &v.Projected.Sources[j]; {
			case p.ServiceAccountToken != nil:
				key := tokenKey(slices.Index(tokens, tokenOf(p.ServiceAccountToken)))
				p.Secret = secretItems(name, []corev1.KeyToPath{{Key: key, Path: p.ServiceAccountToken.Path}})
				p.ServiceAccountToken = nil
			case p.ConfigMap != nil && p.ConfigMap.Name == RootCA:
				p.ConfigMap, p.Secret = nil, secretItems(name, caItems(p.ConfigMap.Items))
			}
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			list[i].Env = withAPIServer(list[i].Env)
		}
	}
	return any, nil
}

func secretItems(name string, items []corev1.KeyToPath) *corev1.SecretProjection {
	return &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Items: items}
}

// caItems names the files of [RootCA], which are all keys if it names none.
func caItems(items []corev1.KeyToPath) []corev1.KeyToPath {
	if len(items) == 0 {
		return []corev1.KeyToPath{{Key: caKey, Path: caKey}}
	}
	return items
}

// apiEnv is what a kubelet says of the Service kubernetes, in every container, unless the container
// says otherwise.
var apiEnv = []corev1.EnvVar{
	{Name: hostEnv, Value: APIServer},
	{Name: "KUBERNETES_SERVICE_PORT", Value: strconv.Itoa(APIPort)},
	{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: strconv.Itoa(APIPort)},
	{Name: "KUBERNETES_PORT", Value: fmt.Sprintf("tcp://%s:%d", APIServer, APIPort)},
	{Name: "KUBERNETES_PORT_443_TCP", Value: fmt.Sprintf("tcp://%s:%d", APIServer, APIPort)},
	{Name: "KUBERNETES_PORT_443_TCP_PROTO", Value: "tcp"},
	{Name: "KUBERNETES_PORT_443_TCP_PORT", Value: strconv.Itoa(APIPort)},
	{Name: "KUBERNETES_PORT_443_TCP_ADDR", Value: APIServer},
}

// withAPIServer adds the API server of the pod's own cluster to an environment, before what may
// refer to it.
func withAPIServer(env []corev1.EnvVar) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range apiEnv {
		if !slices.ContainsFunc(env, func(o corev1.EnvVar) bool { return o.Name == e.Name }) {
			out = append(out, e)
		}
	}
	return append(out, env...)
}

// ReachesHome reports whether a pod was told that the API server of its own cluster is at
// [APIServer].
func ReachesHome(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			if slices.Contains(list[i].Env, corev1.EnvVar{Name: hostEnv, Value: APIServer}) {
				return true
			}
		}
	}
	return false
}
