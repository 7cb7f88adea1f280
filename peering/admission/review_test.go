package admission

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"liqo.io/agent/api"
)

// reviewText is a review as an API server sends it.
func reviewText(operation, user, group, object, old string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
		`"kind":{"group":"discovery.liqo.io","version":"v1alpha1","kind":"PeeringRequest"},` +
		`"resource":{"group":"discovery.liqo.io","version":"v1alpha1","resource":"peeringrequests"},` +
		`"requestKind":{"group":"discovery.liqo.io","version":"v1alpha1","kind":"PeeringRequest"},` +
		`"name":"` + barn + `","operation":"` + operation + `","userInfo":{"username":"` + user + `","groups":["` + group + `","system:authenticated"],"extra":{"x":["y"]}},` +
		`"object":` + object + `,"oldObject":` + old + `,"dryRun":false,"options":{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true}}}`
}

const objectText = `{"apiVersion":"discovery.liqo.io/v1alpha1","kind":"PeeringRequest","metadata":{"name":"` + barn + `","uid":"u","creationTimestamp":"2026-11-01T00:00:00Z",` +
	`"finalizers":["f"],"managedFields":[{"manager":"liqo-peer","operation":"Apply","fieldsV1":{"f:spec":{}}}]},"spec":{"clusterIdentity":{"clusterID":"` + barn + `"}},"status":{"phase":"Pending"}}`

func TestDecode(t *testing.T) {
	r, err := decode([]byte(reviewText("UPDATE", api.PeerUserPrefix("liqo")+barn, api.PeerGroup, objectText, objectText)))
	if err != nil {
		t.Fatal(err)
	}
	q, v := r.question()
	if v != nil {
		t.Fatalf("%+v", v)
	}
	if q.Operation != "UPDATE" || q.User != api.PeerUserPrefix("liqo")+barn || q.Groups[0] != api.PeerGroup || q.Name != barn ||
		q.Request.ClusterID() != barn || q.Old.Finalizers[0] != "f" || q.Request.Status.Phase != api.RequestPending {
		t.Errorf("%+v", q)
	}
	// The name may be in the object only.
	r.Name = ""
	if q, v = r.question(); v != nil || q.Name != barn {
		t.Errorf("%+v %+v", q, v)
	}

	create := reviewText("CREATE", "a", "b", objectText, "null")
	for _, tc := range []struct {
		name, text string
		want       error
	}{
		{"empty", "", errNoReview},
		{"no JSON", "<html>", errNoReview},
		{"cut off", create[:len(create)-1], errNoReview},
		{"goes on", create + "{}", errNoReview},
		{"array", "[]", errNoReview},
		{"null", "null", errNoReview},
		{"older version", strings.Replace(create, "admission.k8s.io/v1", "admission.k8s.io/v1beta1", 1), errNoReview},
		{"other kind", strings.Replace(create, `"AdmissionReview"`, `"TokenReview"`, 1), errNoReview},
		{"another case", strings.Replace(create, `"request"`, `"Request"`, 1), errNoRequest},
		{"no request", `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, errNoRequest},
		{"no uid", strings.Replace(create, `"uid":"705`, `"uidd":"705`, 1), errNoUID},
		{"long uid", strings.Replace(create, `"uid":"705`, `"uid":"`+strings.Repeat("7", maxUID), 1), errNoUID},
		{"deep", strings.Repeat(`{"request":`, 100_000), errNoReview},
		{"operation of another type", strings.Replace(create, `"CREATE"`, `7`, 1), errNoReview},
		{"user of another type", strings.Replace(create, `"username":"a"`, `"username":{}`, 1), errNoReview},
	} {
		if _, err := decode([]byte(tc.text)); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}

	for _, tc := range []struct {
		name, text, want string // "" = allowed
	}{
		{"other resource", strings.Replace(create, `"peeringrequests"`, `"secrets"`, 1), `asked about "secrets"`},
		{"other version", strings.Replace(create, `"v1alpha1","resource"`, `"v1","resource"`, 1), `in version "v1"`},
		{"object of another type", reviewText("CREATE", "a", "b", `[]`, "null"), "cannot read"},
		{"bad time", reviewText("CREATE", "a", "b", strings.Replace(objectText, "2026", "yesterday", 1), "null"), "cannot read"},
		{"bad old object", reviewText("UPDATE", "a", "b", objectText, `"x"`), "cannot read"},
		{"status", strings.Replace(create, `"name":`, `"subResource":"status","name":`, 1), ""},
	} {
		r, err := decode([]byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		_, v := r.question()
		if v == nil || v.Allowed != (tc.want == "") || !strings.Contains(v.Message, tc.want) || !v.Allowed && v.Cause != CauseBadReview {
			t.Errorf("%s: %+v", tc.name, v)
		}
	}
}

// FuzzReview: whatever is sent is answered or refused, and the answer is about
// what was asked.
func FuzzReview(f *testing.F) {
	for _, text := range []string{
		reviewText("CREATE", api.PeerUserPrefix("liqo")+barn, api.PeerGroup, objectText, "null"),
		reviewText("UPDATE", "admin", "system:masters", objectText, objectText),
		reviewText("DELETE", "admin", "system:masters", "null", objectText),
		reviewText("CREATE", "", "", `{"metadata":{"generateName":"a-","labels":{"liqo.io/x":""},"ownerReferences":[{}]}}`, `{"spec":null}`),
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"\u0000"}}`,
		`{`, `null`, `[[[[[[`,
	} {
		f.Add([]byte(text), true, false)
	}
	f.Fuzz(func(t *testing.T, body []byte, pinned, blocked bool) {
		r, err := decode(body)
		if err != nil {
			if !errors.Is(err, errNoReview) && !errors.Is(err, errNoRequest) && !errors.Is(err, errNoUID) {
				t.Fatalf("a refusal without a name: %v", err)
			}
			return
		}
		q, decided := r.question()
		if decided == nil {
			v := Decide(q, Policy{Pinned: pinned, Blocked: blocked, Accept: api.RequestAccepted})
			decided = &v
			if v.Allowed && v.Warnings == nil && q.Operation == OperationCreate && (!pinned || blocked || q.Request.ClusterID() != q.Name) {
				t.Fatalf("let in: %s", body)
			}
		}
		text, err := encode(answerTo(r.UID, *decided))
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Response struct {
				UID     string `json:"uid"`
				Allowed bool   `json:"allowed"`
				Status  *struct {
					Code    int    `json:"code"`
					Message string `json:"message"`
				} `json:"status"`
			} `json:"response"`
		}
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if back.Response.UID != r.UID || back.Response.Allowed != decided.Allowed ||
			!decided.Allowed && (back.Response.Status == nil || back.Response.Status.Code < 400 || back.Response.Status.Message == "") {
			t.Fatalf("%s", text)
		}
	})
}
