package volumes

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bubble"
)

// TestStart: that a provider offers nothing, and nobody has data there, is so once everybody was heard.
func TestStart(t *testing.T) {
	s := (&cluster{version: 1}).agent(t)
	in := func(what string, used, known bool) {
		t.Helper()
		if u, k := s.v.InUse(); u != used || k != known {
			t.Errorf("%s: used %v, known %v; want %v, %v", what, u, k, used, known)
		}
	}
	in("nothing was listed", false, false)
	s.v.attach(s)
	in("no provider was heard", false, false)
	s.classes = classesOf(t, `[{"metadata":{"name":"disk","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"disks"},
		{"metadata":{"name":"liqo","labels":{"app.kubernetes.io/managed-by":"liqo-agent"}},"provisioner":"storage.liqo.io",
		"allowedTopologies":[{"matchLabelExpressions":[{"key":"kubernetes.io/hostname","values":["one","two","virtual"]}]}]}]`)
	claim, _ := grown("2Gi")
	claim.Spec.VolumeName = ""
	places := func(what string, there, refused bool) {
		t.Helper()
		if nodes := fmt.Sprint(s.topologies(s.classes.Get("", "liqo"))); strings.Contains(nodes, "virtual") != there || !strings.Contains(nodes, "two") {
			t.Errorf("%s: the class is for %s", what, nodes)
		}
		if id, why := s.chosen(claim, "virtual"); (why != nil) != refused || !refused && id != providerThere {
			t.Errorf("%s: the claim goes to %q, %v", what, id, why)
		}
	}
	places("the provider was not heard", true, false)
	if nodes := fmt.Sprint(s.topologies(nil)); strings.Contains(nodes, "virtual") {
		t.Errorf("without a class, it is to be for %s", nodes)
	}
	s.v.Set(Provider{ID: providerThere, Reachable: true})
	places("it offers nothing", false, true)
	in("it offers nothing", false, false)
	s.v.Set(Provider{ID: providerThere, Reachable: true, Storage: 1})
	places("it offers some", true, false)
	in("it offers some", true, true)
	s.v.Remove(providerThere)
	s.v.Settled()
	places("there is no such provider", false, true)
	in("there is no such provider", false, true)
}

// TestOursWaits: a pod that comes while the claims are not known yet is not kept from virtual nodes for that.
func TestOursWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		claim, volume := grown("2Gi")
		c := &cluster{version: 10, volumes: map[string]*corev1.PersistentVolume{volume.Name: volume}, claims: map[string]*corev1.PersistentVolumeClaim{"data": claim}, now: time.Now(), kill: -1}
		s := c.agent(t)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.v.Ours(short, "shop", []string{"data"}) {
			t.Error("known although nothing is")
		}
		ours := make(chan bool, 1)
		go func() { ours <- s.v.Ours(t.Context(), "shop", []string{"data"}) }()
		synctest.Wait()
		s.v.attach(s)
		if !<-ours {
			t.Error("a claim with its data at a provider is none of ours")
		}
		s.client.Close()
	})
}
