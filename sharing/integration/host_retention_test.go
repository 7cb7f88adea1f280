package integration

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/bed/bedtest"
	"liqo.io/agent/sharing/host"
)

// testRetention: claims of a consumer that is not admitted go after the time in the settings.
func testRetention(t *testing.T, k *bed.Kube) {
	barn := consumer(13)
	r := startHost(t, k)
	r.set(func(s *host.Settings) { s.Storage, s.StorageKeep = 10*gibi, time.Hour })
	offer := smallOffer()
	offer["storage"] = "10Gi"
	tenant := tenancy(barn, offer)
	r.Set(tenant)
	ns := r.namespace(t, barn, "shop")
	request(t, k, http.MethodPost, namespaces+ns+"/persistentvolumeclaims", jsonMIME,
		`{"metadata":{"name":"data","labels":{"liqo.io/origin-cluster-id":"`+string(barn)+`"}},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	bedtest.Within(t, "the claim to be counted", func() error {
		if status := r.Stands(barn); status.Claims != 1 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	tenant.Admitted = false
	r.Set(tenant)
	bedtest.Within(t, "the claim to be kept", func() error {
		if status := r.Stands(barn); status.RetainedSince.IsZero() || status.Busy {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	r.jump(2 * time.Hour)
	r.set(func(s *host.Settings) { s.MaxNamespaces++ }) // has it look again
	r.Set(tenant)
	awaitGone(t, k, namespaces+ns)
}
