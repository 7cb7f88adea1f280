//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"liqo.io/agent/internal/bed"
)

// measureStorage measures how long a pod with a new claim takes to run, at home and next door, and what a claim costs.
func measureStorage(r *scenarioRun) {
	if !bed.RealRoot() {
		r.Logf("  skipped: containers need root on the machine")
		return
	}
	p := r.newClusters(func(k *bed.Kube) error {
		_, err := k.StartLocalPath(r.Context())
		return errors.Join(k.StartKubelet(r.Context()), err)
	})
	p.startAgents("", "[sharing]\npercentage = 100\nlocal_images = true\nregistries = [\"bed.example.com\"]\nstorage = \"20Gi\"\n")
	p.share()
	r.await(time.Minute, "the storage class", func() error {
		_, err := p.x.kube.Request(r.Context(), "GET", "/apis/storage.k8s.io/v1/storageclasses/liqo", "", nil)
		return err
	})
	p.claimed("first", "liqo", p.node()) // has a namespace made at the provider
	p.unclaim("first")

	const rounds = 5
	var home, away spread
	for i := range rounds {
		for _, at := range []struct {
			name, class, node string
			took              *spread
		}{{"home", bed.LocalPathClass, p.x.host.Name, &home}, {"away", "liqo", p.node(), &away}} {
			name := fmt.Sprintf("%s-%d", at.name, i)
			*at.took = append(*at.took, p.claimed(name, at.class, at.node))
			p.unclaim(name)
		}
	}
	how := fmt.Sprintf("%d pods at each place in turn, claim and pod made at once, to ready; real kubelets, local-path at both, which looks once a second whether its helper pod is done", rounds)
	r.add("new claim to running pod, at home", "", home.String(), how)
	r.add("new claim to running pod, next door", "median at most 300 ms more than at home", away.String(), how)

	const claims = 3
	before := p.count()
	for i := range claims {
		name := fmt.Sprintf("counted-%d", i)
		p.claimed(name, "liqo", p.node())
		p.unclaim(name)
	}
	p.pause(2 * time.Second) // what is still under way
	after := p.count()
	x, y := difference(before.requests[0], after.requests[0]), difference(before.requests[1], after.requests[1])
	how = fmt.Sprintf("%d claims, each with a pod: made, bound, mounted, deleted; with the lease's", claims)
	r.add("API writes of the life of a claim and its pod: consumer's agent at its own API server", "", perPod(after.own[0]-before.own[0], claims), how+"; all requests there: "+list(x))
	r.add("API writes of the life of a claim and its pod: provider's agent", "", perPod(after.own[1]-before.own[1], claims), how+"; all requests there: "+list(y))
}

// claimed makes a claim of a class and a pod on a node that mounts it, and returns after how long the pod is ready.
func (p *pair) claimed(name, class, node string) time.Duration {
	began := time.Now()
	p.x.request("POST", "/api/v1/namespaces/"+shop+"/persistentvolumeclaims",
		`{"metadata": {"name": "`+name+`"}, "spec": {"storageClassName": "`+class+`", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Mi"}}}}`)
	body := p.x.request("POST", "/api/v1/namespaces/"+shop+"/pods", `{"metadata": {"name": "`+name+`"}, "spec": {
		"terminationGracePeriodSeconds": 0, "nodeSelector": {"kubernetes.io/hostname": "`+node+`"},
		"containers": [{"name": "c", "image": "`+bed.Image+`", "imagePullPolicy": "Never", "command": ["sleep", "1000000"], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
		"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "`+name+`"}}]}}`)
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		p.Fatalf("%v", err)
	}
	return p.mine.awaitUID(p.scenarioRun, "pod "+name+" runs", string(pod.UID), isReady).ready.Sub(began)
}

// unclaim deletes a pod and its claim, and waits until the data is gone, too.
func (p *pair) unclaim(name string) {
	for _, resource := range []string{"pods", "persistentvolumeclaims"} {
		p.x.request("DELETE", "/api/v1/namespaces/"+shop+"/"+resource+"/"+name, "")
	}
	p.await(2*time.Minute, name+" is gone", func() error {
		for _, o := range []*box{p.x, p.y} {
			var volumes corev1.PersistentVolumeList
			if err := json.Unmarshal(o.request("GET", "/api/v1/persistentvolumes", ""), &volumes); err != nil {
				return err
			}
			if len(volumes.Items) > 0 {
				return fmt.Errorf("%s has volume %s", o.host.Name, volumes.Items[0].Name)
			}
		}
		return nil
	})
}
