package admission

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// podReview is a review of a pod as an API server sends it.
func podReview(metadata, spec string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5","kind":{"group":"","version":"v1","kind":"Pod"},` +
		`"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","userInfo":{"username":"a"},` +
		`"object":{"kind":"Pod","apiVersion":"v1","metadata":` + metadata + `,"spec":` + spec + `},"oldObject":null,"dryRun":false}}`
}

const (
	createdList = `[{"op":"add","path":"/spec/tolerations","value":[{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoExecute"}]}]`
	appended    = `[{"op":"add","path":"/spec/tolerations/-","value":{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoExecute"}}]`
)

func TestTolerate(t *testing.T) {
	r := serve(t, unhurried, trusting)
	url := strings.TrimSuffix(r.url, admitPath) + toleratePath
	plain := podReview(`{"name":"web"}`, `{"containers":[]}`)
	for _, tc := range []struct {
		name, review, patch string
	}{
		{"none yet", plain, createdList},
		{"empty list", podReview(`{}`, `{"tolerations":[]}`), appended},
		{"null", podReview(`{}`, `{"tolerations":null}`), createdList},
		{"others", podReview(`{}`, `{"tolerations":[{"key":"x","operator":"Exists"},{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoSchedule"},`+
			`{"key":"virtual-node.liqo.io/not-allowed","value":"false"},{"key":"x"},{}]}`), appended},
		{"has it", podReview(`{}`, `{"tolerations":[{"key":"virtual-node.liqo.io/not-allowed","operator":"Exists","effect":"NoExecute"}]}`), ""},
		{"tolerates by value", podReview(`{}`, `{"tolerations":[{"key":"virtual-node.liqo.io/not-allowed","value":"true","tolerationSeconds":5}]}`), ""},
		{"tolerates all", podReview(`{}`, `{"tolerations":[{"operator":"Exists"}]}`), ""},
		{"daemon", podReview(`{"ownerReferences":[{"kind":"DaemonSet","controller":true}]}`, `{}`), ""},
		{"replica", podReview(`{"ownerReferences":[{"kind":"ReplicaSet","controller":true},{"kind":"DaemonSet"}]}`, `{}`), createdList},
		{"mirror", podReview(`{"annotations":{"kubernetes.io/config.mirror":"x"}}`, `{}`), ""},
		{"claim", podReview(`{}`, `{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","persistentVolumeClaim":{"claimName":"data"}}]}`), ""},
		{"claim of its own", podReview(`{}`, `{"volumes":[{"name":"a","ephemeral":{"volumeClaimTemplate":{"spec":{}}}}]}`), ""},
		{"volumes without a claim", podReview(`{}`, `{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","configMap":{"name":"x"},"ephemeral":null}]}`), createdList},
		{"no spec", podReview(`{}`, `null`), ""},
		{"no pod", podReview(`{}`, `[]`), ""},
		{"tolerations of another type", podReview(`{}`, `{"tolerations":{"0":1}}`), ""},
		{"no object", strings.Replace(plain, `"object":`, `"objekt":`, 1), ""},
		{"update", strings.Replace(plain, "CREATE", "UPDATE", 1), ""},
		{"subresource", strings.Replace(plain, `"namespace":`, `"subResource":"status","namespace":`, 1), ""},
		{"another resource", strings.Replace(plain, `"pods"`, `"secrets"`, 1), ""},
	} {
		answered, err := r.client.Post(url, "application/json", strings.NewReader(tc.review))
		if err != nil {
			t.Fatal(err)
		}
		var a struct {
			Response struct {
				UID       string `json:"uid"`
				Allowed   bool   `json:"allowed"`
				PatchType string `json:"patchType"`
				Patch     []byte `json:"patch"`
			} `json:"response"`
		}
		err = json.NewDecoder(answered.Body).Decode(&a)
		answered.Body.Close()
		if err != nil || answered.StatusCode != http.StatusOK || !a.Response.Allowed || a.Response.UID != "705ab4f5" ||
			string(a.Response.Patch) != tc.patch || (a.Response.PatchType == "JSONPatch") != (tc.patch != "") {
			t.Errorf("%s: %d %v %+v %s", tc.name, answered.StatusCode, err, a.Response, a.Response.Patch)
		}
	}
	answered, err := r.client.Post(url, "application/json", strings.NewReader("{"))
	if err != nil {
		t.Fatal(err)
	}
	answered.Body.Close()
	if answered.StatusCode != http.StatusBadRequest {
		t.Errorf("no review: %d", answered.StatusCode)
	}
}

// TestMutatingWebhook: the configuration is what JSON would make of it, and nobody
// waits long for it.
func TestMutatingWebhook(t *testing.T) {
	r := serve(t, defaultTimeouts, trusting)
	text, err := json.Marshal(r.MutatingWebhook(false))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"failurePolicy":"Ignore"`, `"timeoutSeconds":2`, `"matchLabels":{"liqo.io/enabled":"true"}`, toleratePath + `"`, `"operations":["CREATE"]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	s, err := NewServer(Config{Dir: t.TempDir(), Logger: r.cfg.Logger})
	if err != nil || s.MutatingWebhook(false) != nil {
		t.Errorf("%v: a configuration without an address", err)
	}
}

// FuzzPodReview: whatever is sent, a pod is never refused, and the only change is
// the toleration.
func FuzzPodReview(f *testing.F) {
	for _, text := range []string{
		podReview(`{"name":"web"}`, `{"containers":[]}`),
		podReview(`{"ownerReferences":[{"kind":"DaemonSet","controller":true}]}`, `{"tolerations":[{"operator":"Exists"}]}`),
		podReview(`{}`, `{"tolerations":[{"key":7}]}`), podReview(`[]`, `""`), `{`, `null`, `[[[[[[`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := decode(body)
		if err != nil {
			return
		}
		response := new(Server).tolerate(r)
		if !response.Allowed || response.UID != r.UID || response.Status != nil {
			t.Fatalf("%+v", response)
		}
		text, err := encode(response)
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Response struct {
				Patch []byte `json:"patch"`
			} `json:"response"`
		}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if p := string(back.Response.Patch); p != "" && p != createdList && p != appended {
			t.Fatalf("%s", p)
		}
	})
}
