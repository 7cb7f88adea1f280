package network

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/cli/command"
	"liqo.io/agent/cli/render"
)

// Command returns the commands about the network between the pods of joined clusters.
func Command() command.Command {
	return command.Command{
		Name:     "network",
		Usage:    "show the network between the pods of joined clusters",
		About:    "Show whether pods of this cluster and of its peers reach each other, and by which addresses.",
		Examples: []string{"liqo-agent network list"},
		Commands: []command.Command{listCommand(), probeCommand()},
	}
}

func listCommand() command.Command {
	return command.Command{
		Name:  "list",
		Usage: "list the peers with the state of the network to each",
		About: "List the peers with which resources are shared, the state of the network to each, and why it is not\n" +
			"connected. ENGINE is what carries the packets: wireguard where both kernels have it, else tls. THEIR\n" +
			"ADDRESSES are those by which pods of the peer are known in this cluster, OUR ADDRESSES those by which\n" +
			"pods of this cluster are known there. DROPPED counts packets. SERVICES counts those of this cluster\n" +
			"that its pods at the peer have, too.",
		Examples: []string{"liqo-agent network list", "liqo-agent network list -o json | jq -r '.peers[] | select(.state != \"Connected\") | .name'"},
		Agent:    true,
		Formats:  []string{render.Table, render.JSON, render.YAML},
		Run: func(c *command.Call) error {
			client := c.Client()
			defer client.Close()
			known, err := client.Network(c.Ctx())
			if err != nil {
				return err
			}
			if !c.Out.Value(known) {
				printNetwork(c.Out, known)
			}
			return nil
		},
	}
}

func printNetwork(p *render.Printer, known control.Network) {
	if len(known.Peers) == 0 {
		p.Printf("No resources are shared with a cluster. Connect to one: liqo-agent peers connect PEER\n")
	} else {
		rows := make([]render.Row, 0, len(known.Peers))
		for _, one := range known.Peers {
			r := render.Row{Cells: []string{one.Name, stateText(one), one.Engine, rttText(one), strings.Join(one.Theirs, ", "), strings.Join(one.Ours, ", "),
				render.Bytes(int64(one.SentBytes)), render.Bytes(int64(one.ReceivedBytes)), fmt.Sprint(dropped(one)),
				fmt.Sprint(one.Services), p.Ago(one.Since)}}
			if one.State != control.NetworkConnected {
				r.Color = render.Yellow
			}
			rows = append(rows, r)
		}
		p.Table([]string{"PEER", "STATE", "ENGINE", "RTT", "THEIR ADDRESSES", "OUR ADDRESSES", "SENT", "RECEIVED", "DROPPED", "SERVICES", "SINCE"}, rows)
	}
	switch {
	case known.Names.Message != "":
		p.Printf("\n")
		p.Item("", "Pods of peers find no names of their clusters here: "+known.Names.Message, "")
	case len(known.Names.Addresses) > 0:
		p.Printf("\nPods of peers find names of their clusters here at %s.\n", strings.Join(known.Names.Addresses, " and "))
	}
	var problems []string
	if known.Reason != "" {
		problems = append(problems, "this cluster: "+known.Message)
	}
	for _, one := range known.Peers {
		if one.Message != "" && (known.Reason == "" || one.Reason != known.Reason) {
			problems = append(problems, cmp.Or(one.Name, one.ID)+": "+one.Message)
		}
	}
	if len(problems) > 0 {
		p.Printf("\nNot connected:\n")
	}
	for _, text := range problems {
		p.Item("  - ", text, "")
	}
	told := false
	for _, one := range known.Peers {
		for _, r := range one.RefusedServices {
			if !told {
				p.Printf("\nServices that pods at a peer do without:\n")
				told = true
			}
			p.Item("  - ", fmt.Sprintf("%s: %s/%s: %s", cmp.Or(one.Name, one.ID), r.Namespace, r.Name, r.Message), "")
		}
	}
}

// Print writes everything known about the network to one peer.
func Print(p *render.Printer, indent string, one control.NetworkPeer) {
	state := stateText(one)
	if !one.Since.IsZero() {
		state += ", since " + p.When(one.Since)
	}
	if one.Message != "" {
		state += ": " + one.Message
	}
	fields := [][2]string{{"State", state}, {"Round trip", rttText(one)}, {"Engine", engineText(one)}}
	if one.MTU > 0 {
		fields = append(fields, [2]string{"MTU", fmt.Sprintf("%d bytes", one.MTU)},
			[2]string{"Their addresses", cmp.Or(strings.Join(one.Theirs, ", "), "none yet")}, [2]string{"Our addresses", cmp.Or(strings.Join(one.Ours, ", "), "none yet")},
			[2]string{"Traffic", fmt.Sprintf("%s sent, %s received", render.Bytes(int64(one.SentBytes)), render.Bytes(int64(one.ReceivedBytes)))},
			[2]string{"Dropped", droppedText(one)})
	}
	p.Fields(indent, fields...)
}

// droppedText says how many packets were not passed on, and why, "" for none.
func droppedText(one control.NetworkPeer) string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(one.Dropped)) {
		parts = append(parts, fmt.Sprintf("%d %s", one.Dropped[why], why))
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: %s", render.Count(int(dropped(one)), "packet", "packets"), strings.Join(parts, ", "))
}

// stateText is the state of the network to a peer, with why it is off.
func stateText(one control.NetworkPeer) string {
	if one.Reason == "" || one.Reason == one.State {
		return one.State
	}
	return one.State + " (" + one.Reason + ")"
}

// engineText is what carries the packets, and why it is not WireGuard.
func engineText(one control.NetworkPeer) string {
	if one.Engine == "" || one.NoWireGuard == "" {
		return one.Engine
	}
	return one.Engine + ", not WireGuard: " + one.NoWireGuard
}

// rttText is the time of the last answered probe, "" for none.
func rttText(one control.NetworkPeer) string {
	if one.RTTMicroseconds == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms", float64(one.RTTMicroseconds)/1000)
}

// dropped counts the packets that were not passed on.
func dropped(one control.NetworkPeer) uint64 {
	var sum uint64
	for _, n := range one.Dropped {
		sum += n
	}
	return sum
}
