package rules

import (
	"strings"
	"testing"
)

// TestClusterConfigs: no value that cannot take effect is taken, and a misspelt one
// does not go unnoticed.
func TestClusterConfigs(t *testing.T) {
	r := serve(t, "clusterconfigs.config.liqo.io")
	const (
		name    = "spec.discoveryConfig.clusterName: clusterName must be printable text of at most 63 bytes"
		domain  = "spec.discoveryConfig.domain: domain must be a domain name, such as local"
		service = "spec.discoveryConfig.service: service must be a DNS-SD service over TCP, such as _liqo._tcp"
	)
	for _, tc := range []struct {
		spec string
		say  []string
	}{
		{`{"discoveryConfig":{"ttl":9}}`, []string{"spec.discoveryConfig.ttl: should be greater than or equal to 10"}},
		{`{"discoveryConfig":{"ttl":86401}}`, []string{"spec.discoveryConfig.ttl: should be less than or equal to 86400"}},
		{`{"discoveryConfig":{"ttl":"90s"}}`, []string{"spec.discoveryConfig.ttl: must be of type integer"}},
		{`{"discoveryConfig":{"enableDiscovery":"off"}}`, []string{"spec.discoveryConfig.enableDiscovery: must be of type boolean"}},
		{`{"discoveryConfig":{"clusterName":""}}`, []string{"spec.discoveryConfig.clusterName: should be at least 1 chars long"}},
		{`{"discoveryConfig":{"clusterName":"` + strings.Repeat("x", 64) + `"}}`, []string{"spec.discoveryConfig.clusterName: may not be more than 63"}},
		{`{"discoveryConfig":{"clusterName":"` + strings.Repeat("ü", 32) + `"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":" barn"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":"ba\trn"}}`, []string{name}},
		{`{"discoveryConfig":{"clusterName":"ba\u202ern"}}`, []string{name}},
		{`{"discoveryConfig":{"domain":"lo cal"}}`, []string{domain}},
		{`{"discoveryConfig":{"domain":"` + strings.Repeat("x.", 127) + `"}}`, []string{"spec.discoveryConfig.domain: may not be more than 253"}},
		{`{"discoveryConfig":{"service":"_liqo._udp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"liqo"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_li--qo._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_123._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_liqo-._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_abcdefghijklmnop._tcp"}}`, []string{service}},
		{`{"discoveryConfig":{"service":"_abcdefghijklmnopq._tcp"}}`, []string{"spec.discoveryConfig.service: may not be more than 22"}},
		{`{"advertisementConfig":{"outgoingConfig":{"resourceSharingPercentage":101}}}`, []string{"spec.advertisementConfig.outgoingConfig.resourceSharingPercentage: should be less than or equal to 100"}},
		{`{"advertisementConfig":{"outgoingConfig":{"resourceSharingPercentage":-1}}}`, []string{"spec.advertisementConfig.outgoingConfig.resourceSharingPercentage: should be greater than or equal to 0"}},
		{`{"advertisementConfig":{"ingoingConfig":{"acceptPolicy":"Perhaps"}}}`, []string{`spec.advertisementConfig.ingoingConfig.acceptPolicy: supported values: "AutoAcceptMax", "Manual"`}},
		{`{"advertisementConfig":{"ingoingConfig":{"maxAcceptableAdvertisement":-1}}}`, []string{"spec.advertisementConfig.ingoingConfig.maxAcceptableAdvertisement: should be greater than or equal to 0"}},
		{`{"advertisementConfig":{"ingoingConfig":{"maxAcceptableAdvertisement":10001}}}`, []string{"spec.advertisementConfig.ingoingConfig.maxAcceptableAdvertisement: should be less than or equal to 10000"}},
		{`{"advertisementConfig":{"keepaliveRetryTime":0}}`, []string{"spec.advertisementConfig.keepaliveRetryTime: should be greater than or equal to 1"}},
		{`{"advertisementConfig":{"keepaliveRetryTime":86401}}`, []string{"spec.advertisementConfig.keepaliveRetryTime: should be less than or equal to 86400"}},
		{`{"advertisementConfig":{"keepaliveThreshold":0}}`, []string{"spec.advertisementConfig.keepaliveThreshold: should be greater than or equal to 1"}},
		{`{"advertisementConfig":{"keepaliveThreshold":1001}}`, []string{"spec.advertisementConfig.keepaliveThreshold: should be less than or equal to 1000"}},

		{`{"discoveryConfig":{"clusterName":"Grünes Haus №1","enableDiscovery":false,"enableAdvertisement":false,"autojoin":true,"autojoinUntrusted":false,"ttl":90,
			"domain":"local","service":"_l-1._tcp"},"authConfig":{"allowEmptyToken":false},"advertisementConfig":{"outgoingConfig":{"enableBroadcaster":true,
			"resourceSharingPercentage":100},"ingoingConfig":{"acceptPolicy":"AutoAcceptMax","maxAcceptableAdvertisement":5},"keepaliveThreshold":3,"keepaliveRetryTime":20}}`, nil},
	} {
		_, err := r.create(t, "liqo-configuration", `"spec":`+tc.spec)
		check(t, tc.spec, err, tc.say...)
	}
	_, err := r.create(t, "another-one", `"spec":{}`)
	check(t, "another name", err, "<nil>: the agent reads the ClusterConfig named liqo-configuration only")

	empty, err := r.create(t, "liqo-configuration", `"status":{}`)
	check(t, "no spec", err)
	if err == nil && value(t, empty, "spec") == nil {
		t.Errorf("without a spec it is stored as %v", empty.Object)
	}

	old, err := r.create(t, "liqo-configuration", `"spec":{"discoveryConfig":{"enableDiscovery":false}}`)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.patch(t, old, `{"spec":{"discoveryConfig":{"enableDiscovry":true}}}`)
	if err == nil || err.Error() != `unknown fields ["spec.discoveryConfig.enableDiscovry"]` {
		t.Errorf("a misspelt switch: %v", err)
	}
}
