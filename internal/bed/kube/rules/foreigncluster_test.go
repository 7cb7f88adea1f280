package rules

import (
	"strings"
	"testing"
)

// TestForeignClusters: mistakes in ForeignClusters are caught when they are written.
// What an authUrl may be is in TestURLs.
func TestForeignClusters(t *testing.T) {
	r := serve(t, "foreignclusters.discovery.liqo.io")
	const neither = "spec: set authUrl (where the cluster's endpoint is) or clusterIdentity.clusterID"
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{`{"authUrl":"https://192.0.2.1:6447"}`, nil},
		{`{"authUrl":"https://[2001:db8::1]:6447"}`, nil},
		{`{"authUrl":"https://[fe80::1%25eth0]:6447"}`, nil},
		{`{"authUrl":"https://farm.example.com"}`, nil},
		{`{"clusterIdentity":{"clusterID":"a-1"},"join":true}`, nil},
		{`{}`, []string{neither}},
		{`{"clusterIdentity":{"clusterName":"x"}}`, []string{neither}},
		{`null`, []string{"spec: Required value"}},
		{`{"authUrl":"http://192.0.2.1:6447"}`, []string{sayScheme}},
		{`{"authUrl":"192.0.2.1:6447"}`, []string{sayScheme}},
		{`{"authUrl":"https://"}`, []string{sayNoHost}},
		{`{"authUrl":"https://:6447"}`, []string{sayNoHost}},
		{`{"authUrl":"https://x","discoveryType":"Wifi"}`, []string{`spec.discoveryType: supported values: "LAN", "WAN", "Manual", "IncomingPeering"`}},
		{`{"authUrl":"https://x","trustMode":"yes"}`, []string{`spec.trustMode: supported values: "Unknown", "Trusted", "Untrusted"`}},
		{`{"authUrl":"https://x","namespace":"Not Good"}`, []string{"spec.namespace: should match"}},
		{`{"authUrl":"https://x","namespace":"` + strings.Repeat("a", 64) + `"}`, []string{"spec.namespace: may not be more than 63"}},
		{`{"clusterIdentity":{"clusterID":"UPPER"}}`, []string{"spec.clusterIdentity.clusterID: should match"}},
		{`{"clusterIdentity":{"clusterID":"` + strings.Repeat("a", 64) + `"}}`, []string{"spec.clusterIdentity.clusterID: may not be more than 63"}},
		{`{"clusterIdentity":{"clusterID":"a","clusterName":"` + strings.Repeat("ü", 64) + `"}}`, []string{"spec.clusterIdentity.clusterName: may not be more than 63"}},
	} {
		_, err := r.create(t, "a", `"spec":`+tc.spec)
		check(t, tc.spec, err, tc.say...)
	}

	t.Run("edits", func(t *testing.T) {
		old, err := r.create(t, "a", `"spec":{"clusterIdentity":{"clusterID":"a-1"},"join":true}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, patch := range []string{
			`{"spec":{"clusterIdentity":{"clusterID":"b"}}}`,
			`{"spec":{"clusterIdentity":{"clusterID":null},"authUrl":"https://x"}}`,
			`{"spec":{"clusterIdentity":null,"authUrl":"https://x"}}`,
		} {
			_, err := r.patch(t, old, patch)
			check(t, patch, err, "spec: clusterIdentity.clusterID cannot change: delete this ForeignCluster and create another one")
		}
		renamed, err := r.patch(t, old, `{"spec":{"clusterIdentity":{"clusterName":"other"}}}`)
		check(t, "another name", err)
		if err == nil && value(t, renamed, "spec", "clusterIdentity", "clusterName") != "other" {
			t.Errorf("after the edit: %v", renamed.Object)
		}
	})
	t.Run("defaults", func(t *testing.T) {
		u, err := r.create(t, "a", `"spec":{"authUrl":"https://x"}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			want   any
			fields []string
		}{
			{false, []string{"spec", "join"}},
			{"Manual", []string{"spec", "discoveryType"}},
			{"Unknown", []string{"spec", "trustMode"}},
			{"Unknown", []string{"status", "role"}},
			{"Pending", []string{"status", "authStatus"}},
			{false, []string{"status", "outgoing", "joined"}},
			{false, []string{"status", "incoming", "joined"}},
			{false, []string{"status", "modules", "networking", "enabled"}},
		} {
			if got := value(t, u, tc.fields...); got != tc.want {
				t.Errorf("%s is %v, want %v", strings.Join(tc.fields, "."), got, tc.want)
			}
		}
	})
}
