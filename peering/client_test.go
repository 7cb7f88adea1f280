package peering

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"liqo.io/agent/kube"
	"liqo.io/agent/peering/fields"
	"liqo.io/agent/peering/foreign"
	"liqo.io/agent/peering/objects"
)

// apiServer answers each request with the next of the given bodies and returns
// a client for it, and what the client sent.
func apiServer(t *testing.T, status int, answers ...string) (*kube.Client, *[]string) {
	t.Helper()
	var sent []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent = append(sent, r.Method+" "+r.URL.RequestURI()+" "+string(text))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answers[min(len(sent), len(answers))-1])
	}))
	t.Cleanup(server.Close)
	c, err := kube.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, &sent
}

// TestCreateRespectsOthers: server-side apply merges into an object that came
// into being a moment ago, and the client takes that back.
func TestCreateRespectsOthers(t *testing.T) {
	create, _ := creation(barn())
	fc := func(managers ...string) string {
		out := made(barn())
		text, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, m := range managers {
			fields = append(fields, `{"manager":"`+m+`","operation":"Apply"}`)
		}
		return strings.Replace(string(text), `"metadata":{`, `"metadata":{"managedFields":[`+strings.Join(fields, ",")+`],`, 1)
	}
	c, sent := apiServer(t, http.StatusCreated, fc(fields.ManagerDiscovery))
	if got, err := foreign.Send(t.Context(), c, create, nil); err != nil || got.UID != "uid-made" || len(*sent) != 1 {
		t.Errorf("do = %+v, %v after %q", got, err, *sent)
	}
	if strings.Contains((*sent)[0], "force") || strings.Contains((*sent)[0], "join") {
		t.Errorf("sent %s", (*sent)[0])
	}
	c, sent = apiServer(t, http.StatusOK, fc(fields.ManagerDiscovery, "kubectl-create"))
	if _, err := foreign.Send(t.Context(), c, create, nil); !errors.Is(err, foreign.ErrMadeByOthers) {
		t.Errorf("error %v", err)
	}
	if len(*sent) != 2 || !strings.Contains((*sent)[1], `"uid":"uid-made"`) || strings.Contains((*sent)[1], "spec") || strings.Contains((*sent)[1], "labels") {
		t.Errorf("sent %q", *sent)
	}
}

// TestErrorsKeepTheServersWords also checks that the client does not retry by
// itself: the queue does, without holding a worker.
func TestErrorsKeepTheServersWords(t *testing.T) {
	c, sent := apiServer(t, http.StatusTooManyRequests, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","message":"go slow","code":429}`)
	err := objects.Remove(t.Context(), c, foreign.Kind(), "x", "u", "3")
	seconds, asked := apierrors.SuggestsClientDelay(err)
	if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "go slow") || !asked || seconds != 7 {
		t.Errorf("error %v, delay %d %v", err, seconds, asked)
	}
	if len(*sent) != 1 || !strings.Contains((*sent)[0], `"preconditions":{"uid":"u","resourceVersion":"3"}`) {
		t.Errorf("sent %q", *sent)
	}
}

// TestAnswersAreBounded: whatever answers in the API server's place, memory suffices. Package kube bounds lists.
func TestAnswersAreBounded(t *testing.T) {
	filler := strings.Repeat(" ", 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, filler); err != nil {
				return
			}
		}
	}))
	t.Cleanup(server.Close)
	c, err := kube.New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := objects.Remove(t.Context(), c, foreign.Kind(), "x", "u", ""); err == nil {
		t.Error("a refusal without an end is no error")
	}
}
