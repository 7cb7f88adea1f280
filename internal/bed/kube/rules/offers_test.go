package rules

import (
	"fmt"
	"strings"
	"testing"
)

// smuggled is a status that somebody sends along with the object.
const smuggled = `,"status":{"reason":"smuggled"}`

func TestPeeringRequests(t *testing.T) {
	r := serve(t, "peeringrequests.discovery.liqo.io")
	const noID = "spec: clusterIdentity.clusterID is required"
	from := func(more string) string { return `{"clusterIdentity":{"clusterID":"a"}` + more + `}` }
	long := strings.Repeat("x", 2000)
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{from(``), nil},
		{from(`,"namespace":"liqo","authUrl":"https://192.0.2.1:6447"`), nil},
		{from(`,"authUrl":"https://[fe80::1%25eth0]:6447"`), nil},
		{from(`,"authUrl":""`), nil},
		{`{"clusterIdentity":{"clusterID":"a","clusterName":"Grünes Haus"}}`, nil},
		{`{"clusterIdentity":{"clusterID":"other"}}`, []string{"<nil>: a PeeringRequest is named after the cluster ID that it is from"}},
		{`{"clusterIdentity":{"clusterID":"UPPER"}}`, []string{"spec.clusterIdentity.clusterID: should match", "<nil>: a PeeringRequest is named after"}},
		{`{"clusterIdentity":{"clusterID":"` + long + `"}}`, []string{"spec.clusterIdentity.clusterID: may not be more than 63"}},
		{`{"clusterIdentity":{"clusterName":"a"}}`, []string{noID}},
		{`{"clusterIdentity":{}}`, []string{noID}},
		{`{}`, []string{"spec.clusterIdentity: Required value"}},
		{`null`, []string{"spec: Required value"}},
		{from(`,"authUrl":"http://192.0.2.1:6447"`), []string{sayScheme}},
		{from(`,"authUrl":"https://"`), []string{sayNoHost}},
		{from(`,"authUrl":"file:///etc/passwd"`), []string{sayScheme}},
		{from(`,"authUrl":"https://` + long + `"`), []string{"spec.authUrl: may not be more than 1024"}},
		{from(`,"resources":{"cpu":"500m","memory":"4Gi"}`), nil},
		{from(`,"resources":{"cpu":"2"}`), nil},
		{from(`,"resources":{}`), nil},
		{from(`,"resources":{"cpu":"-1","memory":"much"}`), []string{"spec.resources.cpu: should match", "spec.resources.memory: should match"}},
		{from(`,"resources":{"cpu":2}`), []string{"spec.resources.cpu: must be of type string"}},
		{from(`,"resources":{"memory":"` + long + `"}`), []string{"spec.resources.memory: may not be more than 32"}},
		{from(`,"namespace":"Not Good"`), []string{"spec.namespace: should match"}},
		{from(`,"namespace":"` + long + `"`), []string{"spec.namespace: may not be more than 63"}},
		{`{"clusterIdentity":{"clusterID":"a","clusterName":"` + long + `"}}`, []string{"spec.clusterIdentity.clusterName: may not be more than 63"}},
	} {
		_, err := r.create(t, "a", `"spec":`+tc.spec+smuggled)
		check(t, tc.spec, err, tc.say...)
	}

	t.Run("status", func(t *testing.T) {
		u, err := r.create(t, "a", `"spec":`+from(`,"namespace":"liqo","authUrl":"https://192.0.2.1:6447"`)+smuggled)
		if err != nil {
			t.Fatal(err)
		}
		is := func(phase, reason, message, namespace any) {
			t.Helper()
			for _, field := range []struct {
				want         any
				part, within string
			}{
				{phase, "phase", "status"}, {reason, "reason", "status"}, {message, "message", "status"},
				{namespace, "namespace", "spec"}, {"https://192.0.2.1:6447", "authUrl", "spec"},
			} {
				if got := value(t, u, field.within, field.part); got != field.want {
					t.Errorf("%s.%s is %v, want %v", field.within, field.part, got, field.want)
				}
			}
			if got := value(t, u, "spec", "clusterIdentity", "clusterID"); got != "a" {
				t.Errorf("the cluster ID is %v", got)
			}
		}
		is("Pending", nil, nil, "liqo")
		// It is not written with the object, nor the object with it.
		if u, err = r.patch(t, u, `{"status":{"phase":"Accepted"},"spec":{"namespace":"elsewhere"}}`); err != nil {
			t.Fatal(err)
		}
		is("Pending", nil, nil, "elsewhere")
		if u, err = r.patchStatus(t, u, `{"status":{"phase":"Refused","reason":"Blocked","message":"It is."},"spec":{"namespace":"nowhere"}}`); err != nil {
			t.Fatal(err)
		}
		is("Refused", "Blocked", "It is.", "elsewhere")
		_, err = r.patchStatus(t, u, `{"status":{"phase":"Perhaps"}}`)
		check(t, "an unknown phase", err, `status.phase: supported values: "Pending", "Accepted", "Refused"`)
		_, err = r.patch(t, u, `{"spec":{"clusterIdentity":{"clusterID":"b"}}}`)
		check(t, "another cluster ID", err, "<nil>: a PeeringRequest is named after the cluster ID that it is from")
		_, err = r.patch(t, u, `{"spec":{"engine":"liqo"}}`)
		check(t, "an engine", err, "spec: engine cannot change")
		if u, err = r.create(t, "a", `"spec":{"clusterIdentity":{"clusterID":"a"},"engine":"liqo"}`); err != nil {
			t.Fatal(err)
		}
		_, err = r.patch(t, u, `{"spec":{"engine":null}}`)
		check(t, "no engine", err, "spec: engine cannot change")
		_, err = r.patch(t, u, `{"spec":{"namespace":"elsewhere"}}`)
		check(t, "the same engine", err)
		if u, err = r.patch(t, u, `{"spec":{"resources":{"cpu":"2"}}}`); err != nil || value(t, u, "spec", "resources", "cpu") != "2" {
			t.Errorf("amounts: %v", err)
		}
		_, err = r.patch(t, u, `{"spec":{"resources":null}}`)
		check(t, "no amounts", err)
	})
}

func TestAdvertisements(t *testing.T) {
	r := serve(t, "advertisements.sharing.liqo.io")
	const times = `"timestamp":"2026-11-01T00:00:00Z","timeToLive":"2026-11-01T06:00:00Z"`
	offer := func(more string) string { return `{"clusterId":"a",` + times + more + `}` }
	entries := func(n int, value string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(`"k%d":%q`, i, value))
		}
		return "{" + strings.Join(out, ",") + "}"
	}
	long := strings.Repeat("x", 2000)
	amounts := offer(`,"resourceQuota":{"hard":{"cpu":"3900m","memory":"7.5Gi","pods":"110","ephemeral-storage":"12e9","nvidia.com/gpu":"1"}}`)
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{offer(``), nil},
		{amounts, nil},
		{offer(`,"labels":` + entries(64, strings.Repeat("v", 63)) + `,"prices":` + entries(64, "1")), nil},
		{offer(`,"images":[{"names":["docker.io/library/busybox:1"],"sizeBytes":4000000}]`), nil},
		{`{"clusterId":"other",` + times + `}`, []string{"<nil>: an Advertisement is named after the cluster ID that it is from"}},
		{`{"clusterId":"UPPER",` + times + `}`, []string{"spec.clusterId: should match", "<nil>: an Advertisement is named after"}},
		{`{"clusterId":"` + long + `",` + times + `}`, []string{"spec.clusterId: may not be more than 63"}},
		{`null`, []string{"spec: Required value"}},
		{`{` + times + `}`, []string{"spec.clusterId: Required value"}},
		{`{"clusterId":"a"}`, []string{"spec.timestamp: Required value", "spec.timeToLive: Required value"}},
		{`{"clusterId":"a","timestamp":"soon","timeToLive":"later"}`,
			[]string{"spec.timeToLive: must be of type date-time", "spec.timestamp: must be of type date-time"}},
		{offer(`,"labels":` + entries(65, "v")), []string{"spec.labels: must have at most 64 items"}},
		{offer(`,"labels":{"a":"` + long + `"}`), []string{"spec.labels.a: may not be more than 63"}},
		{offer(`,"prices":` + entries(65, "1")), []string{"spec.prices: must have at most 64 items"}},
		{offer(`,"prices":{"a":"` + long + `"}`), []string{"spec.prices.a: may not be more than 63"}},
		{offer(`,"resourceQuota":{"hard":` + entries(65, "1") + `}`), []string{"spec.resourceQuota.hard: must have at most 64 items"}},
		{offer(`,"resourceQuota":{"hard":{"cpu":"-1"}}`), []string{"spec.resourceQuota.hard.cpu: should match"}},
		{offer(`,"resourceQuota":{"hard":{"cpu":"many"}}`), []string{"spec.resourceQuota.hard.cpu: should match"}},
		{offer(`,"resourceQuota":{"hard":{"cpu":"1e999999999"}}`), []string{"spec.resourceQuota.hard.cpu: should match"}},
		{offer(`,"resourceQuota":{"hard":{"cpu":"` + strings.Repeat("1", 33) + `"}}`), []string{"spec.resourceQuota.hard.cpu: may not be more than 32"}},
		{offer(`,"resourceQuota":{"hard":{"cpu":4}}`), []string{"spec.resourceQuota.hard.cpu: must be of type string"}},
		{offer(`,"images":[` + strings.Repeat(`{},`, 512) + `{}]`), []string{"spec.images: must have at most 512 items"}},
		{offer(`,"images":[{"names":["` + long + `"]}]`), []string{"spec.images[0].names[0]: may not be more than 512"}},
		{offer(`,"images":[{"names":[` + strings.Repeat(`"x",`, 16) + `"x"]}]`), []string{"spec.images[0].names: must have at most 16 items"}},
		{offer(`,"images":[{"sizeBytes":-1}]`), []string{"spec.images[0].sizeBytes: greater than or equal to 0"}},
	} {
		_, err := r.create(t, "a", `"spec":`+tc.spec+smuggled)
		check(t, tc.spec, err, tc.say...)
	}

	nothing, err := r.create(t, "a", `"spec":`+offer(``))
	if err != nil || value(t, nothing, "spec", "resourceQuota") == nil {
		t.Errorf("without amounts it is stored as %v (%v)", nothing, err)
	}

	t.Run("status", func(t *testing.T) {
		u, err := r.create(t, "a", `"spec":`+amounts+smuggled)
		if err != nil {
			t.Fatal(err)
		}
		if value(t, u, "status", "advertisementStatus") != nil || value(t, u, "status", "reason") != nil ||
			value(t, u, "spec", "resourceQuota", "hard", "memory") != "7.5Gi" || value(t, u, "spec", "timeToLive") != "2026-11-01T06:00:00Z" {
			t.Errorf("%v", u.Object)
		}
		u, err = r.patchStatus(t, u, `{"status":{"advertisementStatus":"Accepted","vnodeReference":{"name":"liqo-a"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		if value(t, u, "status", "advertisementStatus") != "Accepted" || value(t, u, "status", "vnodeReference", "name") != "liqo-a" {
			t.Errorf("after writing the status: %v", u.Object)
		}
	})
}
