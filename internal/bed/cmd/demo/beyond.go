//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"liqo.io/agent/internal/bed"
)

// quiet shows that a box can be told to be silent while it runs, and what that does not end.
func (d *demo) quiet(offer string) {
	d.chapter("box-a is told to be silent, with kubectl")
	started := time.Now()
	d.a.switchLAN(false)
	d.a.wait(findDeadline, "box-a is silent", d.a.listens(false))
	d.say("box-a neither looks for neighbours nor announces itself, %s after the first key press. Who is joined stays:", since(started))
	d.a.show("liqo-agent", "status")
	d.a.show("kubectl", "get", "foreignclusters")
	d.same(offer)
}

// beyond shows a cluster that no multicast reaches, found in a DNS domain.
func (d *demo) beyond(lan *bed.Bed) {
	d.chapter("Beyond the LAN: a DNS domain lists box-b")
	d.a.wait(findDeadline, "box-a has forgotten box-b", d.a.alone())
	d.say("box-a is still told not to look at its LAN, so it no longer knows box-b. A DNS server (BIND) serves this zone:")
	zone := `example.com.               PTR  liqo-cluster.example.com.
liqo-cluster.example.com.  SRV  0 0 6447 auth.server.example.com.
auth.server.example.com.   A    192.0.2.112
`
	fmt.Println(zone)
	server := lan.AddHost("ns", "192.0.2.53/24")
	server.StartBIND(d.ctx, bed.Zone{Name: "example.com", Text: zone})
	d.a.host.WriteFile("/etc/resolv.conf", "nameserver 192.0.2.53\n")
	const domain = `apiVersion: discovery.liqo.io/v1alpha1
kind: SearchDomain
metadata:
  name: example.com
spec:
  domain: example.com
  autojoin: true
`
	d.a.host.WriteFile("/var/lib/domain.yaml", domain)
	d.a.show("cat", "/var/lib/domain.yaml")
	started := time.Now()
	d.a.show("kubectl", "apply", "-f", "/var/lib/domain.yaml")
	d.a.wait(findDeadline, "box-b is found in the domain", d.a.foreign("box-b", "auth.server.example.com"))
	d.say("Found %s later, by its name:", since(started))
	d.a.show("kubectl", "get", "foreignclusters", "-o", "wide")
	d.a.show("liqo-agent", "domains", "show", "example.com")
	d.a.show("kubectl", "delete", "searchdomain", "example.com")
	d.a.wait(findDeadline, "box-a has forgotten box-b", d.a.alone())

	d.chapter("box-a may look at its LAN again")
	d.a.switchLAN(true)
	d.a.wait(findDeadline, "box-a finds box-b again", d.a.foreign("box-b", "192.0.2.112"))
	d.a.show("kubectl", "get", "foreignclusters")
}

// switchLAN is the line of the documentation that switches discovery on the LAN on or off.
func (x *box) switchLAN(on bool) {
	x.show("kubectl", "patch", "clusterconfigs", "liqo-configuration",
		"--patch", fmt.Sprintf(`{"spec":{"discoveryConfig":{"enableDiscovery": %v, "enableAdvertisement": %v}}}`, on, on), "--type", "merge")
}

// listens is the condition that the box looks for neighbours, or does not.
func (x *box) listens(want bool) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "liqo-agent", "config", "show")
		if err != nil {
			return err
		}
		return says(out, fmt.Sprintf("enable_discovery = %v", want))
	}
}
