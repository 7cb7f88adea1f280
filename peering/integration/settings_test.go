package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"liqo.io/agent/api"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/peering"
	"liqo.io/agent/peering/config"
)

const (
	configPath    = ccPath + "/" + api.ClusterConfigName
	configCRDPath = crdsPath + "clusterconfigs.config.liqo.io"
)

// The lines that users know, as they know them.
const (
	enableLine = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"enableDiscovery": true, "enableAdvertisement": true}}}' \
--type 'merge'`
	disableLine = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"enableDiscovery": false, "enableAdvertisement": false}}}' \
--type 'merge'`
	autojoinLine = `kubectl patch clusterconfigs liqo-configuration \
--patch '{"spec":{"discoveryConfig":{"autojoin": false}}}' \
--type 'merge'`
)

// settings notes what Config.ClusterConfig is told: as JSON, "null" for none.
type settings struct {
	mu   sync.Mutex
	told []string
	at   time.Time // of the last one
}

func (s *settings) tell(spec *api.ClusterConfigSpec) {
	text, err := json.Marshal(spec)
	if err != nil {
		text = []byte(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told, s.at = append(s.told, string(text)), time.Now()
}

// last returns what was told last and when, and how much was told.
func (s *settings) last() (string, time.Time, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.told) == 0 {
		return "", time.Time{}, 0
	}
	return s.told[len(s.told)-1], s.at, len(s.told)
}

// since returns what was told after the first n, without repetitions: each connection tells it, and a busy machine may lose one.
func (s *settings) since(n int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Compact(slices.Clone(s.told[n:]))
}

// await waits until that was told last.
func (s *settings) await(t *testing.T, want string) {
	t.Helper()
	within(t, "the ClusterConfig is told", func() error {
		if got, _, _ := s.last(); got != want {
			return fmt.Errorf("told %s, want %s", got, want)
		}
		return nil
	})
}

func getConfig(t *testing.T, k *bed.Kube) (*api.ClusterConfig, error) {
	t.Helper()
	text, err := k.Request(t.Context(), "GET", configPath, "", nil)
	if err != nil {
		return nil, err
	}
	c := &api.ClusterConfig{}
	return c, json.Unmarshal(text, c)
}

// awaitConfig waits until there is an empty ClusterConfig, that is not the one
// with the UID given.
func awaitConfig(t *testing.T, k *bed.Kube, other string) *api.ClusterConfig {
	t.Helper()
	var c *api.ClusterConfig
	within(t, "an empty ClusterConfig", func() (err error) {
		if c, err = getConfig(t, k); err == nil && (string(c.UID) == other || !cmp.Equal(c.Spec, api.ClusterConfigSpec{})) {
			err = fmt.Errorf("it is %s with %+v", c.UID, c.Spec)
		}
		return err
	})
	return c
}

// TestClusterConfig follows the settings through everything that a person may do
// with them.
func TestClusterConfig(t *testing.T) {
	k := startKube(t)
	var heard settings
	path, cable := wired(t, k)
	r := startWith(t, path, newRegistry(), newDecisions(), func(c *peering.Config) { c.People.ClusterConfig = heard.tell })

	first := awaitConfig(t, k, "")
	heard.await(t, `{}`)
	if first.Labels[api.LabelManagedBy] != api.ManagedByAgent {
		t.Errorf("labels %v", first.Labels)
	}
	for _, m := range first.ManagedFields {
		if m.Manager != config.ManagerConfig {
			t.Errorf("%s owns %s", m.Manager, m.FieldsV1)
		}
	}
	// What the agent writes from here on is not about this object.
	unwritten := func(t *testing.T) {
		t.Helper()
		c, err := getConfig(t, k)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range c.ManagedFields {
			if m.Manager == config.ManagerConfig && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.String(), "Config") {
				t.Errorf("the agent owns %s", m.FieldsV1)
			}
		}
	}

	t.Run("the lines that users know", func(t *testing.T) {
		const on = `{"discoveryConfig":{"enableDiscovery":true,"enableAdvertisement":true}}`
		const off = `{"discoveryConfig":{"enableDiscovery":false,"enableAdvertisement":false}}`
		awaitInstalled(t, k)
		known(t, k, "clusterconfigs")
		writes := r.Status().Writes
		// One of them has to be quick enough: the machine may be busy with something else
		// during any other.
		quickest := time.Hour
		for i, end := 0, time.Now().Add(bed.Hang); i < 3 || quickest > time.Second && time.Now().Before(end); i++ {
			for _, tc := range []struct{ line, want string }{{disableLine, off}, {enableLine, on}} {
				if out, err := shell(t, k, tc.line); err != nil || out != "clusterconfig.config.liqo.io/liqo-configuration patched\n" {
					t.Fatalf("%s: %v\n%s", tc.line, err, out)
				}
				answered := time.Now()
				heard.await(t, tc.want)
				_, at, _ := heard.last()
				quickest = min(quickest, at.Sub(answered))
			}
		}
		t.Logf("told %v after kubectl had its answer", quickest)
		if quickest > time.Second {
			t.Errorf("the quickest took %v", quickest)
		}
		if out, err := shell(t, k, autojoinLine); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var c *api.ClusterConfig
		within(t, "autojoin", func() (err error) {
			got, _, _ := heard.last()
			if !strings.Contains(got, `"autojoin":false`) || !strings.Contains(got, `"enableDiscovery":`) {
				return fmt.Errorf("told %s", got)
			}
			c, err = getConfig(t, k)
			return err
		})
		if n := r.Status().Writes - writes; n != 0 {
			t.Errorf("the agent wrote %d times", n)
		}
		if c.UID != first.UID {
			t.Error("it is another object")
		}
		unwritten(t)
		out, err := k.Kubectl(t.Context(), "get", "clusterconfigs")
		if err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "NAME DISCOVERY ADVERTISEMENT AUTOJOIN SHARING HEALTHY AGE liqo-configuration") {
			t.Errorf("kubectl get: %v\n%s", err, out)
		}
	})

	t.Run("what is refused is not told", func(t *testing.T) {
		_, _, before := heard.last()
		// All that is refused is in internal/bed/kube/rules.
		out, err := shell(t, k, `kubectl patch clusterconfigs liqo-configuration --type merge --patch '{"spec":{"discoveryConfig":{"enableDiscovery": "no"}}}' 2>&1`)
		if err == nil || !strings.Contains(err.Error()+out, "must be of type boolean") {
			t.Errorf("%v\n%s", err, out)
		}
		if got := heard.since(before - 1); len(got) != 1 {
			t.Errorf("told %s", got)
		}
	})

	t.Run("unset", func(t *testing.T) {
		if out, err := shell(t, k, `kubectl patch clusterconfigs liqo-configuration --type merge --patch '{"spec":{"discoveryConfig":null}}'`); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		heard.await(t, `{}`)
	})

	t.Run("applied", func(t *testing.T) {
		// Nothing that the agent wrote is in the way of somebody who applies a file.
		for _, tc := range []struct{ how, spec, told string }{
			{"--server-side", "{discoveryConfig: {ttl: 41}}", `{"discoveryConfig":{"ttl":41}}`},
			{"", "{discoveryConfig: {ttl: 42}}", `{"discoveryConfig":{"ttl":42}}`},
		} {
			manifest := "apiVersion: config.liqo.io/v1alpha1\nkind: ClusterConfig\nmetadata: {name: liqo-configuration}\nspec: " + tc.spec + "\n"
			if out, err := k.Host.RunInput(t.Context(), manifest, "sh", "-c", "kubectl apply "+tc.how+" -f - 2>&1"); err != nil {
				t.Fatalf("kubectl apply %s: %v\n%s", tc.how, err, out)
			}
			heard.await(t, tc.told)
		}
		unwritten(t)
	})

	t.Run("deleted", func(t *testing.T) {
		_, _, before := heard.last()
		if out, err := k.Kubectl(t.Context(), "delete", "clusterconfigs", api.ClusterConfigName); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		heard.await(t, `{}`)
		if got := heard.since(before - 1)[1:]; !cmp.Equal(got, []string{"null", "{}"}) {
			t.Errorf("told %s", got)
		}
		if c := awaitConfig(t, k, string(first.UID)); c.Labels[api.LabelManagedBy] != api.ManagedByAgent {
			t.Errorf("labels %v", c.Labels)
		}
	})

	t.Run("replaced", func(t *testing.T) {
		manifest := "apiVersion: config.liqo.io/v1alpha1\nkind: ClusterConfig\nmetadata: {name: liqo-configuration}\nspec: {discoveryConfig: {ttl: 104}}\n"
		if out, err := k.Host.RunInput(t.Context(), manifest, "sh", "-c", "kubectl replace --force -f - 2>&1"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		heard.await(t, `{"discoveryConfig":{"ttl":104}}`)
		for i := range 20 {
			request(t, k, "DELETE", configPath, "", "")
			request(t, k, "POST", ccPath, jsonMIME,
				fmt.Sprintf(`{"apiVersion":"config.liqo.io/v1alpha1","kind":"ClusterConfig","metadata":{"name":"liqo-configuration"},"spec":{"discoveryConfig":{"ttl":%d}}}`, 200+i))
		}
		heard.await(t, `{"discoveryConfig":{"ttl":219}}`)
	})

	t.Run("a new connection tells it again, and touches nothing", func(t *testing.T) {
		before, err := getConfig(t, k)
		if err != nil {
			t.Fatal(err)
		}
		_, _, n := heard.last()
		r.lose(t, cable)
		if _, _, now := heard.last(); now != n {
			t.Error("told something without a connection")
		}
		cable.mend()
		within(t, "told again", func() error {
			if got, _, now := heard.last(); now == n || got != `{"discoveryConfig":{"ttl":219}}` {
				return fmt.Errorf("told %d times, %s", now-n, got)
			}
			return nil
		})
		within(t, "the connection", func() error {
			if !r.Status().Connected {
				return errors.New("not connected")
			}
			return nil
		})
		if got := heard.since(n); !cmp.Equal(got, []string{`{"discoveryConfig":{"ttl":219}}`}) {
			t.Errorf("told %s", got)
		}
		after, err := getConfig(t, k)
		if err != nil || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("%v: %+v", err, after)
		}
	})

	t.Run("the kind is deleted", func(t *testing.T) {
		request(t, k, "DELETE", configCRDPath, "", "")
		heard.await(t, `{}`)
		awaitConfig(t, k, "")
		if out, err := shell(t, k, disableLine); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		heard.await(t, `{"discoveryConfig":{"enableDiscovery":false,"enableAdvertisement":false}}`)
	})
}

// TestClusterConfigOfAPerson: what is there when the agent comes is theirs, as it is.
func TestClusterConfigOfAPerson(t *testing.T) {
	k := startKube(t)
	request(t, k, "POST", ccPath, jsonMIME,
		`{"apiVersion":"config.liqo.io/v1alpha1","kind":"ClusterConfig","metadata":{"name":"liqo-configuration"},"spec":{"discoveryConfig":{"enableAdvertisement":false}}}`)
	before, err := getConfig(t, k)
	if err != nil {
		t.Fatal(err)
	}
	var heard settings
	r := startWith(t, direct(t, k), newRegistry(), newDecisions(), func(c *peering.Config) { c.People.ClusterConfig = heard.tell })
	heard.await(t, `{"discoveryConfig":{"enableAdvertisement":false}}`)
	r.put(barn())
	awaitFC(t, k, string(barnID), condition(api.ConditionReachable, api.ConditionTrue))
	after, err := getConfig(t, k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("it is touched:\n%s", diff)
	}
	if got := heard.since(0); len(got) != 1 {
		t.Errorf("told %s", got)
	}
	// Without anybody who wants to know, nothing is made.
	r.stop()
	request(t, k, "DELETE", configPath, "", "")
	run(t, r.kubeconfig, r.reg).put(neighbour(1))
	awaitFC(t, k, string(neighbour(1).ID), condition(api.ConditionReachable, api.ConditionTrue))
	if c, err := getConfig(t, k); err == nil {
		t.Errorf("somebody made %+v", c)
	}
}
