package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What the rules about URLs say.
const (
	sayScheme   = "spec.authUrl: authUrl must begin with https://, as in https://192.0.2.1:6447"
	sayNoURL    = "spec.authUrl: authUrl is no URL: write https://ADDRESS:PORT"
	sayBrackets = "spec.authUrl: authUrl must have an IPv6 address in brackets"
	sayNoHost   = "spec.authUrl: authUrl has no host"
	sayPort     = "spec.authUrl: authUrl must have a port between 1 and 65535"
	sayUser     = "spec.authUrl: authUrl must not hold a user name or password"
	sayPath     = "spec.authUrl: authUrl must end after the port"
	sayEmpty    = "spec.authUrl: authUrl must not be empty"
)

// urls are what may be an authUrl, and what is said about the others.
var urls = []struct {
	url string
	say []string // all of it; nil = it is taken
}{
	{"https://192.0.2.1:6447", nil},
	{"https://[2001:db8::1]:6447", nil},
	{"https://[2001:db8::1]", nil},
	{"https://[fe80::1%25eth0]:6447", nil},
	{"https://box.example.com", nil},
	{"https://box.example.com:443/", nil},
	{"https://box:1", nil},
	{"https://my_box:65535", nil},
	{"HTTPS://Box.Example.com:6447", nil},

	{"http://192.0.2.1:6447", []string{sayScheme}},
	{"ftp://192.0.2.1:6447", []string{sayScheme}},
	{"192.0.2.1:6447", []string{sayScheme}},
	{"box:6447", []string{sayScheme}},
	{"box", []string{sayScheme}},
	{"//box:6447", []string{sayScheme}},
	{" https://box:6447", []string{sayScheme}},
	{"file:///etc/passwd", []string{sayScheme}},
	{"https:/box:6447", []string{sayScheme}},
	{"https://ho st", []string{sayNoURL}},
	{"https://box:six", []string{sayNoURL}},
	{"https://box:6447 ", []string{sayNoURL}},
	{"https://box:-1", []string{sayNoURL}},
	{"https://[2001:db8::1:6447", []string{sayNoURL}},
	{"https://bo\tx", []string{sayNoURL}},
	{"https://2001:db8::1:6447", []string{sayBrackets}},
	{"https://2001:db8::1", []string{sayBrackets}},
	{"https://::1", []string{sayBrackets}},
	{"https://", []string{sayNoHost}},
	{"https:///", []string{sayNoHost}},
	{"https://:6447", []string{sayNoHost}},
	{"https://box:0", []string{sayPort}},
	{"https://box:99999", []string{sayPort}},
	{"https://box:65536", []string{sayPort}},
	{"https://box:123456789012345678901234567890", []string{sayPort}},
	{"https://box:", []string{sayPort}},
	{"https://user@box", []string{sayUser}},
	{"https://user:secret@box:6447", []string{sayUser}},
	{"https://box/path", []string{sayPath}},
	{"https://box:6447/ids", []string{sayPath}},
	{"https://box//", []string{sayPath}},
	{"https://box:6447/%2e", []string{sayPath}},
	{"https://box?x=1", []string{sayPath}},
	{"https://box:6447/?", []string{sayPath}},
	{"https://box:6447/#x", []string{sayPath}},
	{"https://user@box/path?x#y", []string{sayUser, sayPath}},
	{"https://" + strings.Repeat("x", 1016), nil},
	{"https://" + strings.Repeat("x", 1017), []string{"spec.authUrl: may not be more than 1024"}},
}

// TestURLs: every URL that no endpoint can have is refused when it is written,
// with what to write instead.
func TestURLs(t *testing.T) {
	foreignClusters, peeringRequests := serve(t, "foreignclusters.discovery.liqo.io"), serve(t, "peeringrequests.discovery.liqo.io")
	for _, tc := range urls {
		url, err := json.Marshal(tc.url)
		if err != nil {
			t.Fatal(err)
		}
		_, err = foreignClusters.create(t, "a", fmt.Sprintf(`"spec":{"authUrl":%s}`, url))
		check(t, "ForeignCluster "+tc.url, err, tc.say...)
		_, err = peeringRequests.create(t, "a", fmt.Sprintf(`"spec":{"clusterIdentity":{"clusterID":"a"},"authUrl":%s}`, url))
		check(t, "PeeringRequest "+tc.url, err, tc.say...)
	}
	_, err := foreignClusters.create(t, "a", `"spec":{"authUrl":""}`)
	check(t, "ForeignCluster with an empty URL", err, sayEmpty)
	_, err = peeringRequests.create(t, "a", `"spec":{"clusterIdentity":{"clusterID":"a"},"authUrl":""}`)
	check(t, "PeeringRequest with an empty URL", err)

	t.Run("an edit", func(t *testing.T) {
		old, err := foreignClusters.create(t, "a", `"spec":{"authUrl":"https://192.0.2.1:6447"}`)
		if err != nil {
			t.Fatal(err)
		}
		_, err = foreignClusters.patch(t, old, `{"spec":{"authUrl":"https://192.0.2.1:6447/ids"}}`)
		check(t, "a path", err, sayPath)
	})
	// A rule that is newer than an object does not stand in the way of other edits.
	t.Run("an edit of an object from before the rule", func(t *testing.T) {
		old := foreignClusters.stored(t, "a", `"spec":{"authUrl":"https://192.0.2.1:6447/ids"}`)
		edited, err := foreignClusters.patch(t, old, `{"spec":{"join":true}}`)
		check(t, "join", err)
		if err == nil && (value(t, edited, "spec", "join") != true || value(t, edited, "spec", "authUrl") != "https://192.0.2.1:6447/ids") {
			t.Errorf("after the edit: %v", edited.Object)
		}
		_, err = foreignClusters.patch(t, old, `{"spec":{"authUrl":"https://192.0.2.1:6447/other"}}`)
		check(t, "another path", err, sayPath)
	})
}
