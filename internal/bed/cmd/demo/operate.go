//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
)

const (
	// agentUser is who the agent is once it has a kubeconfig of its own.
	agentUser = "/etc/liqo-agent/kubeconfig"
	backup    = "/var/lib/box-a.backup"
)

// operate shows what an operator does with a box that works.
func (d *demo) operate() {
	d.chapter("Looking after a box")
	d.say("By default the agent uses K3s' administrator. With one command it has an account of its own, with no more than it needs:")
	d.a.show("liqo-agent", "rbac", "--apply")
	if err := d.a.agent.Stop(); err != nil {
		d.tb.Fatalf("%v", err)
	}
	d.a.startAgent()
	d.a.wait(joinDeadline, "box-a is joined, with its own account", d.a.acts(agentUser))
	d.a.wait(joinDeadline, "box-b is a node of box-a", d.a.nodes(2))
	d.a.show("liqo-agent", "status")
	d.say("What happened, for those who look with kubectl:")
	d.a.show("kubectl", "get", "events", "--field-selector", "involvedObject.kind=ForeignCluster", "--sort-by", ".lastTimestamp")
	d.say("Is anything wrong with this box?")
	d.a.show("liqo-agent", "doctor")
	d.say("Everything that makes the box what it is, in one file:")
	d.a.show("liqo-agent", "state", "backup", backup)

	d.chapter("box-b goes back to the factory")
	d.b.show("liqo-agent", "reset", "--yes")
	d.a.wait(loseDeadline, "box-a has parted from it in order", d.a.nodes(1))
	d.a.wait(loseDeadline, "the Deployment is whole at home", d.a.ready(6))
	d.a.show("liqo-agent", "peers", "history")
}

// acts is the condition that the box's agent uses its API server as the user of that kubeconfig,
// and is joined.
func (x *box) acts(kubeconfig string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := x.host.Run(ctx, "liqo-agent", "status", "-o", "json")
		if err != nil {
			return err
		}
		var status struct {
			Kubernetes struct {
				Connected  bool
				Kubeconfig string
			}
			Peering struct{ Joined int }
			Sharing struct {
				Using struct {
					Providers []struct{ Ready bool }
				}
			}
		}
		err = json.Unmarshal([]byte(out), &status)
		k, uses := status.Kubernetes, status.Sharing.Using.Providers
		if err == nil && (!k.Connected || k.Kubeconfig != kubeconfig || status.Peering.Joined != 1 || len(uses) != 1 || !uses[0].Ready) {
			err = fmt.Errorf("its status is %+v", status)
		}
		return err
	}
}
