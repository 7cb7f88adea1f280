package integration

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/kube"
	"liqo.io/agent/sharing/host"
	"liqo.io/agent/sharing/offload"
	"liqo.io/agent/sharing/workload"
)

// growingClaims: a claim at a provider grows by what the provider counts and gives, and no more.
func growingClaims(s *storing) {
	t, ctx := s.t, s.t.Context()
	v, _ := s.keep(nil, func(string) {})
	bedtest.Within(t, "the storage class", func() error { return s.a.Get(ctx, liqoClass, nil) })
	s.claim("shop", "data", "1Gi")
	s.mount("shop", "db", "data")
	claim := boundClaim(t, s.a, "shop", "data")
	copied := namespaces + guestNamespace("shop") + "/persistentvolumeclaims/" + workload.ClaimName("data", string(claim.UID))
	// A pod of the guest's has it bound.
	s.must(s.b.Create(ctx, namespaces+guestNamespace("shop")+"/pods", virtualPod(guestNamespace("shop"), "db", func(p *corev1.Pod) {
		p.Labels = map[string]string{workload.LabelOriginCluster: string(consumerID)}
		p.Spec.NodeName = ""
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": quantity("10m"), "memory": quantity("1Mi")}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: workload.ClaimName("data", string(claim.UID))}}}}
	}), nil))
	bedtest.Within(t, "the provider's volume", func() error {
		if copies := s.copies("shop"); len(copies) != 1 || copies[0].Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("%+v", copies)
		}
		return nil
	})
	grow := func(size string) {
		t.Helper()
		s.must(s.a.Patch(ctx, claimsPath+"data", "", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"`+size+`"}}}}`), nil))
	}
	shows := func(size string, growing bool) {
		t.Helper()
		bedtest.Within(t, "the claim with "+size, func() error {
			now, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
			if err := s.a.Get(ctx, claimsPath+"data", now); err != nil {
				return err
			}
			if err := s.a.Get(ctx, volumesPath+now.Spec.VolumeName, volume); err != nil {
				return err
			}
			is := len(now.Status.Conditions) == 1 && now.Status.Conditions[0].Type == corev1.PersistentVolumeClaimResizing
			if got, has := now.Status.Capacity.Storage().String(), volume.Spec.Capacity.Storage().String(); got != size || has != size || is != growing {
				return fmt.Errorf("the claim has %s, the volume %s, conditions %+v", got, has, now.Status.Conditions)
			}
			return nil
		})
	}
	asks := func(size string) error {
		copies := s.copies("shop")
		if got := copies[0].Spec.Resources.Requests.Storage().String(); got != size {
			return fmt.Errorf("the copy asks for %s, want %s", got, size)
		}
		return nil
	}

	// The provider's class cannot.
	grow("3Gi")
	s.event("data", "VolumeResizeFailed", host.ReasonNoExpansion+": the storage class local-path of this cluster cannot expand claims")
	s.must(asks("1Gi"))
	shows("1Gi", false)

	// Now it can. Its volume is larger than what was asked for all the time.
	s.must(s.b.Patch(ctx, classesPath+"/local-path", "", types.MergePatchType, []byte(`{"allowVolumeExpansion":true}`), nil))
	shows("3Gi", false)
	s.must(asks("3Gi"))
	bedtest.Within(t, "what the provider counts", func() error {
		if status := s.host.Stands(consumerID); status.Storage != 3*gibi {
			return fmt.Errorf("%d bytes", status.Storage)
		}
		return nil
	})

	// More than is offered.
	grow("12Gi")
	s.event("data", "VolumeResizeFailed", "7Gi of 10Gi left")
	s.must(asks("3Gi"))
	// A consumer that goes on asking gets no further, with its own claim or with one that is not its own.
	client, err := kube.New(&rest.Config{Host: "https://provider", Transport: s.link})
	s.must(err)
	t.Cleanup(client.Close)
	s.must(s.b.Create(ctx, namespaces+guestNamespace("shop")+"/persistentvolumeclaims", object{
		"metadata": object{"name": "theirs"},
		"spec":     object{"accessModes": []string{"ReadWriteOnce"}, "resources": object{"requests": object{"storage": "1Gi"}}},
	}, nil))
	more := claim.DeepCopy()
	more.Spec.Resources.Requests[corev1.ResourceStorage] = quantity("12Gi")
	body, why := workload.ClaimOf(more, workload.Origin{Cluster: consumerID, Namespace: guestNamespace("shop")})
	if why != nil {
		t.Fatal(why)
	}
	theirs := strings.ReplaceAll(string(body), workload.ClaimName("data", string(claim.UID)), "theirs")
	for path, attempt := range map[string]struct{ body, says string }{
		copied: {string(body), "OfferUsedUp"},
		namespaces + guestNamespace("shop") + "/persistentvolumeclaims/theirs": {theirs, "NotPermitted"},
	} {
		said, refused := offload.Refused(client.Apply(ctx, path, "eve", true, json.RawMessage(attempt.body), nil))
		if !refused || !strings.Contains(said, attempt.says) {
			t.Errorf("%s: refused %t, %s", path, refused, said)
		}
	}
	// What has grown does not shrink.
	if err := s.a.Patch(ctx, claimsPath+"data", "", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), nil); err == nil {
		t.Error("a claim shrinks")
	}

	// More is offered. The disk there has 10Gi, and then more.
	s.host.set(func(settings *host.Settings) { settings.Storage = 20 * gibi })
	offer := smallOffer()
	offer["storage"] = "20Gi"
	s.host.Set(tenancy(consumerID, offer))
	p := s.volumes()
	p.Storage = 20 * gibi
	v.Set(p)
	shows("10Gi", true)
	s.must(asks("12Gi"))
	size := resource.MustParse("16Gi")
	s.must(s.b.Patch(ctx, copied+"/status", "", types.MergePatchType, marshal(t, object{"status": object{"capacity": object{"storage": size.String()}}}), nil))
	shows("12Gi", false)

	// It goes as any other.
	s.end("db")
	now := int64(0)
	s.must(s.b.Delete(ctx, podPath(guestNamespace("shop"), "db"), metav1.DeleteOptions{GracePeriodSeconds: &now}))
	s.must(s.b.Delete(ctx, namespaces+guestNamespace("shop")+"/persistentvolumeclaims/theirs", metav1.DeleteOptions{}))
	s.must(s.a.Delete(ctx, claimsPath+"data", metav1.DeleteOptions{}))
	awaitGone(t, s.kubeA, claimsPath+"data")
	bedtest.Within(t, "no claims at the provider", func() error {
		if n := len(s.copies("shop")); n > 0 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	// The copy goes before the volume, and without the provider a volume stays.
	awaitGone(t, s.kubeA, volumesPath+claim.Spec.VolumeName)
	v.Settled()
	v.Remove(providerID)
	awaitGone(t, s.kubeA, liqoClass)
}
