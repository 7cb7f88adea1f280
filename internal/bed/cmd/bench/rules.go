//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"liqo.io/agent/internal/bed"
	"liqo.io/agent/internal/mdnscheck"
)

// measureRules counts which requirements of RFC 6762 responders meet.
func measureRules(r *scenarioRun) {
	total := len(mdnscheck.Checks())
	for _, name := range []string{"liqo-agent", "avahi"} {
		passed, failed := r.rules(name)
		how := "all met"
		if len(failed) > 0 {
			how = "not met: " + strings.Join(failed, "; ")
		}
		wanted := ""
		if name == "liqo-agent" {
			wanted = fmt.Sprintf("%d of %d", total, total)
		}
		r.add("RFC 6762/6763 responder checks, "+name, wanted, fmt.Sprintf("%d of %d", passed, total), how)
	}
}

func (r *scenarioRun) rules(name string) (passed int, failed []string) {
	b := bed.New(r)
	addr := netip.MustParseAddr("10.77.0.2")
	x := r.box(b, name, addr.String()+"/24")
	subject := mdnscheck.Subject{
		Name: name, Service: liqoService, Addr: addr,
		AddAddress: x.host.Link("eth0").AddAddress, DelAddress: x.host.Link("eth0").DelAddress,
		Start: func(context.Context) (func() error, error) {
			x.start("--set", "discovery.enable_discovery=false")
			return x.agent.Stop, nil
		},
	}
	if name == "avahi" {
		subject.Quiet = 4500 * time.Millisecond // it announces four times, the last one after 4 s
		subject.Start = func(ctx context.Context) (func() error, error) {
			a := x.host.StartAvahi(ctx)
			p, err := x.host.AvahiPublish(ctx, "avahi", "_liqo._tcp", 6447, "txtvers=1", "id=avahi")
			if err != nil {
				return nil, errors.Join(err, a.Stop())
			}
			return func() error {
				if err := p.Stop(); err != nil {
					return err
				}
				return a.Stop()
			}, nil
		}
	}
	lab, err := mdnscheck.NewLab(b.AddHost("lab", "10.77.0.1/24"), netip.MustParseAddr("10.77.0.1"), b.LAN(), subject)
	if err != nil {
		r.Fatalf("%v", err)
	}
	defer func() {
		if err := lab.Close(); err != nil {
			r.Errorf("%v", err)
		}
	}()
	results, err := lab.Run(r.Context(), mdnscheck.Checks(), func(res mdnscheck.Result) {
		if res.Err != nil {
			r.Logf("  %s: %s: %v", name, res.Check, res.Err)
		}
	})
	if err != nil {
		r.Fatalf("%v", err)
	}
	for _, res := range results {
		if res.Err == nil {
			passed++
		} else {
			failed = append(failed, res.Section+" "+res.Name)
		}
	}
	return passed, failed
}
