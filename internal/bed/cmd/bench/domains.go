//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/crowd"
)

// domainTTL is the TTL of everything in the measured domains. What is asked again in one TTL does not
// depend on how long it is.
const domainTTL = 20 * time.Second

// measureDomains has an agent look in a DNS domain that lists a thousand clusters.
func measureDomains(r *scenarioRun) {
	for _, style := range []struct {
		name string
		size int
		zone func(*crowd.Crowd) string
	}{
		{"PTR, SRV and A", 10, plainZone},
		{"PTR, SRV and A", crowdSize, plainZone},
		{"RFC 6763", crowdSize, serviceZone},
	} {
		r.domain(fmt.Sprintf("%d clusters in a DNS domain (%s)", style.size, style.name), style.size, style.zone)
	}
}

// zoneHead begins a zone: what is not there is not there for as long as the rest is.
func zoneHead() string {
	ttl := int(domainTTL.Seconds())
	return fmt.Sprintf("$TTL %d\n@ SOA ns admin 1 3600 600 86400 %d\n@ NS ns\nns A 10.77.0.53\n", ttl, ttl)
}

// plainZone lists clusters without saying who they are.
func plainZone(c *crowd.Crowd) string {
	var zone strings.Builder
	zone.WriteString(zoneHead())
	for i, x := range c.Boxes {
		fmt.Fprintf(&zone, "@ PTR c%d\nc%d SRV 0 0 6447 h%d\nh%d A %s\n", i, i, i, i, x.Addr)
	}
	return zone.String()
}

// serviceZone lists them with their cluster IDs and keys.
func serviceZone(c *crowd.Crowd) string {
	var zone strings.Builder
	zone.WriteString(zoneHead())
	for i, x := range c.Boxes {
		fmt.Fprintf(&zone, "_liqo._tcp PTR c%d._liqo._tcp\nc%d._liqo._tcp SRV 0 0 6447 h%d\nc%d._liqo._tcp TXT \"id=%s\" \"fp=%s\"\nh%d A %s\n",
			i, i, i, i, x.ID, x.Fingerprint(), i, x.Addr)
	}
	return zone.String()
}

func (r *scenarioRun) domain(name string, size int, zone func(*crowd.Crowd) string) {
	b := bed.New(r)
	x := r.box(b, "a", "10.77.0.1/16")
	c := r.newCrowd(addCrowd(b), crowd.Options{Size: size, Endpoints: true})
	// The clusters are behind a router, as they would be: a thousand neighbours at once are more than
	// Linux resolves hardware addresses of.
	if out, err := x.host.Run(r.Context(), "ip", "route", "add", "10.77.16.0/20", "via", "10.77.15.1"); err != nil {
		r.Fatalf("%v %s", err, out)
	}
	server := b.AddHost("ns", "10.77.0.53/16")
	server.StartBIND(r.Context(), bed.Zone{Name: "example.com", Text: zone(c)})
	x.host.WriteFile("/etc/resolv.conf", "nameserver 10.77.0.53\n")
	x.start("--set", "discovery.enable_discovery=false", "--set", "discovery.enable_advertisement=false")
	x.mustStatus()
	asked := r.queries(server)
	began := time.Now()
	x.cli("domains", "add", "example.com", "--min-interval", "1s", "--no-wait")
	var resolved time.Time
	r.await(2*time.Minute, "all clusters of the domain", func() error {
		d, err := x.domain()
		if err != nil {
			return err
		}
		if resolved.IsZero() && d.Outcome == "Found" && len(d.Entries) == size {
			resolved = d.LastQuery
		}
		answering, silent := 0, ""
		for _, e := range d.Entries {
			if e.Reason == "" && e.ClusterID != "" {
				answering++
			} else {
				silent = e.Name + ": " + e.Message
			}
		}
		if answering != size {
			return fmt.Errorf("%d of %d answer: %s", answering, len(d.Entries), silent)
		}
		return nil
	})
	how := "BIND, an agent and the clusters' endpoints on the same 2 cores"
	r.add(name+": all records looked up", "", short(resolved.Sub(began)), fmt.Sprintf("%d questions by then and shortly after; %s", r.queries(server)-asked, how))
	r.add(name+": all clusters answered and known", "", short(time.Since(began)), "full TLS handshake with each; "+how)
	r.pause(domainTTL)
	asked = r.queries(server)
	const rounds = 3
	r.pause(rounds * domainTTL)
	perTTL := float64(r.queries(server)-asked) / rounds
	r.add(name+": questions in steady state", "", fmt.Sprintf("%.0f in one TTL", perTTL),
		fmt.Sprintf("with records of an hour: %.0f an hour; measured over %d TTLs of %v", perTTL, rounds, domainTTL))
	used, err := usageOf(x.agent.PID())
	if err != nil {
		r.Fatalf("%v", err)
	}
	r.add(name+": memory", "", mib(used.rss), "RSS")
	x.stop()
}

// domain returns what the agent's only search domain is to it.
func (x *box) domain() (control.Domain, error) {
	out, err := x.host.Run(x.r.Context(), x.bin, "domains", "list", "-o", "json")
	var all []control.Domain
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("there are %d search domains", len(all))
	}
	if err != nil {
		return control.Domain{}, err
	}
	return all[0], nil
}

// queries counts what a name server was asked: datagrams, and connections.
func (r *scenarioRun) queries(server *bed.Host) int {
	var text []byte
	if err := server.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp")
		return err
	}); err != nil {
		r.Fatalf("%s: %v", server.Name, err)
	}
	total := 0
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i++ {
		names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
		for j := range min(len(names), len(values)) {
			if names[0] == values[0] && (names[0] == "Udp:" && names[j] == "InDatagrams" || names[0] == "Tcp:" && names[j] == "PassiveOpens") {
				var n int
				if _, err := fmt.Sscan(values[j], &n); err != nil {
					r.Fatalf("/proc/net/snmp: %v", err)
				}
				total += n
			}
		}
	}
	return total
}
