package config

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bubble"
	"liqo.io/agent/internal/kubetest"
)

// clusterConfig returns a ClusterConfig as the API server delivers it.
func clusterConfig(uid types.UID, version int, discovery *bool) *api.ClusterConfig {
	c := &api.ClusterConfig{}
	c.Name, c.UID, c.ResourceVersion = api.ClusterConfigName, uid, strconv.Itoa(version)
	if discovery != nil {
		c.Spec.DiscoveryConfig = &api.DiscoveryConfig{EnableDiscovery: discovery}
	}
	return c
}

// TestClusterConfigAtWork runs the goroutine through the life of the object.
func TestClusterConfigAtWork(t *testing.T) {
	yes, no := true, false
	const created = `{"apiVersion":"config.liqo.io/v1alpha1","kind":"ClusterConfig","metadata":{"name":"liqo-configuration","uid":"made","resourceVersion":"100"},"spec":{}}`
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		_, r, fake := parts(t, Config{ClusterConfig: func(spec *api.ClusterConfigSpec) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case spec == nil:
				told = append(told, "none")
			case spec.DiscoveryConfig == nil:
				told = append(told, "empty")
			default:
				told = append(told, strconv.FormatBool(*spec.DiscoveryConfig.EnableDiscovery))
				*spec.DiscoveryConfig.EnableDiscovery = false // it is ours to keep
			}
		}}, func(*http.Request, string) (int, string) { return http.StatusCreated, created })
		heard := func(want ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
			told = nil
		}
		heardLast := func(want string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(told) == 0 || told[len(told)-1] != want {
				t.Errorf("told %q, want %q in the end", told, want)
			}
			told = nil
		}
		put := func(c *api.ClusterConfig) {
			t.Helper()
			if err := kubetest.Tell(r.store).Update(c); err != nil {
				t.Fatal(err)
			}
		}
		gone := func(uid types.UID, version int) {
			t.Helper()
			if err := kubetest.Tell(r.store).Delete(clusterConfig(uid, version, nil)); err != nil {
				t.Fatal(err)
			}
		}
		sent := func(want int) {
			t.Helper()
			synctest.Wait()
			out := fake.Take()
			if len(out) != want {
				t.Errorf("sent %q, want %d", out, want)
			}
			for _, request := range out {
				if request != `POST /apis/config.liqo.io/v1alpha1/clusterconfigs?fieldManager=liqo-agent-config `+
					`{"kind":"ClusterConfig","apiVersion":"config.liqo.io/v1alpha1","metadata":{"name":"liqo-configuration","labels":{"app.kubernetes.io/managed-by":"liqo-agent"}}}` {
					t.Errorf("sent %s", request)
				}
			}
		}
		go r.work(t.Context())
		heard()
		sent(0) // it may be there

		if err := kubetest.Tell(r.store).Replace("50"); err != nil {
			t.Fatal(err)
		}
		heard("none", "empty")
		sent(1)
		put(clusterConfig("made", 101, &yes))
		heard("true")
		put(clusterConfig("made", 102, &yes)) // a label
		heard()
		put(clusterConfig("made", 103, &no))
		put(clusterConfig("made", 104, &yes))
		put(clusterConfig("made", 105, &no))
		heardLast("false")

		// Replaced by a person: the agent does not come in between.
		gone("made", 106)
		heard("none")
		time.Sleep(recreatePause / 2)
		synctest.Wait()
		put(clusterConfig("theirs", 107, &yes))
		heard("true")
		gone("theirs", 108)
		put(clusterConfig("theirs again", 109, &no))
		heardLast("false")
		time.Sleep(time.Minute)
		synctest.Wait()
		sent(0)
		heard()

		// Deletion takes effect when it begins, and the object is made anew when it ended.
		c := clusterConfig("theirs again", 110, &no)
		c.DeletionTimestamp, c.Finalizers = &metav1.Time{Time: t0}, []string{"example.com/theirs"}
		put(c)
		heard("none")
		time.Sleep(time.Minute)
		synctest.Wait()
		sent(0)
		// Somebody is quicker.
		fake.Say(func(*http.Request, string) (int, string) {
			return kubetest.Failure(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		})
		gone("theirs again", 111)
		time.Sleep(time.Minute)
		synctest.Wait()
		sent(1)
		heard()
		put(clusterConfig("quicker", 112, &yes))
		heard("true")

		// It cannot be made for a while.
		fails := 3
		fake.Say(func(*http.Request, string) (int, string) {
			if fails--; fails >= 0 {
				return kubetest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
			}
			return http.StatusCreated, strings.Replace(created, `"100"`, `"200"`, 1)
		})
		gone("quicker", 113)
		heard("none")
		time.Sleep(time.Minute)
		synctest.Wait()
		sent(4)
		heard("empty")
		if fake.missing.Load() == 0 {
			t.Error("nobody looks for the custom resource")
		}

		// Objects with other names cannot be made any more, but may be there.
		other := clusterConfig("other", 300, &yes)
		other.Name = "other"
		put(other)
		time.Sleep(time.Minute)
		synctest.Wait()
		heard()
		sent(0)
	})
}

// TestPartsThatAreOff: nothing is asked and nothing is made for what nobody wants
// to know.
func TestPartsThatAreOff(t *testing.T) {
	d, r, fake := parts(t, Config{}, func(*http.Request, string) (int, string) { return http.StatusOK, "{}" })
	d.Run(t.Context())
	r.Run(t.Context())
	if sent := fake.Take(); len(sent) != 0 {
		t.Errorf("sent %q", sent)
	}
}
