package engine

import (
	"fmt"
	"strings"

	"liqo.io/agent/liqo/document"
)

// Setting is the value of peering.engine.
type Setting string

// The settings. "" is that of a cluster which does not say: it has no Liqo, or its agent is from
// before there was a choice.
const (
	Auto        Setting = "auto"
	OnlyBuiltin Setting = "builtin"
	OnlyLiqo    Setting = "liqo"
)

// Engine is what peers two clusters.
type Engine string

// The engines.
const (
	Builtin Engine = "builtin" // the agent's own sharing
	Liqo    Engine = "liqo"
)

// Installation is the Liqo of one cluster.
type Installation struct {
	// ID is how Liqo calls the cluster, and Version its version, "" if that is not known.
	ID      document.ClusterID
	Version string
	// Problem is why it cannot be used, a clause for people; "" if it can.
	Problem string
}

// State is what one cluster says about its engines.
type State struct {
	Setting Setting
	// Liqo is nil where there is none. Unknown: it was not looked for yet.
	Liqo    *Installation
	Unknown bool
}

// May reports whether the engine Liqo can be chosen, whatever the other cluster says.
func (s State) May() bool {
	return s.Setting == OnlyLiqo || s.Setting != OnlyBuiltin && s.Liqo != nil && s.Liqo.Problem == ""
}

// Choice is the engine of two clusters, and why.
type Choice struct {
	Engine Engine
	// Blocked: neither engine is possible with these settings. Engine is the one that was
	// asked for.
	Blocked bool
	// Why is a sentence for people.
	Why string
}

// Choose chooses the engine of two clusters. An empty State of the other one is that of an
// older agent.
func Choose(ours, theirs State) Choice {
	obstacle := obstacles(ours.Liqo, theirs.Liqo)
	needed := ours.Setting == OnlyLiqo || theirs.Setting == OnlyLiqo
	whose, where := "", ""
	switch {
	case ours.Setting == OnlyBuiltin && theirs.Setting == OnlyLiqo:
		return Choice{Liqo, true, "peering.engine is builtin here and liqo there: change one of the two."}
	case ours.Setting == OnlyLiqo && theirs.Setting == OnlyBuiltin:
		return Choice{Liqo, true, "peering.engine is liqo here and builtin there: change one of the two."}
	case ours.Setting == OnlyBuiltin:
		whose = "here"
	case theirs.Setting == OnlyBuiltin:
		whose = "there"
	case obstacle == "":
		return Choice{Liqo, false, fmt.Sprintf("Both clusters run Liqo: %s here, %s there.", called(ours.Liqo), called(theirs.Liqo))}
	case needed:
		where = "there"
		if ours.Setting == OnlyLiqo {
			where = "here"
		}
		return Choice{Liqo, true, fmt.Sprintf("peering.engine is liqo %s, but %s.", where, obstacle)}
	default:
		return Choice{Builtin, false, upper(obstacle) + "."}
	}
	return Choice{Builtin, false, "peering.engine is builtin " + whose + "."}
}

// obstacles returns why Liqo cannot peer two clusters, a clause; "" if it can.
func obstacles(ours, theirs *Installation) string {
	switch {
	case ours == nil:
		return "Liqo is not installed here"
	case ours.Problem != "":
		return "Liqo here cannot be used: " + ours.Problem
	case theirs == nil:
		return "the other cluster does not say that it has Liqo"
	case theirs.Problem != "":
		return "Liqo there cannot be used: " + theirs.Problem
	case ours.ID == theirs.ID:
		return fmt.Sprintf("Liqo calls both clusters %s", ours.ID)
	case minor(ours.Version) != minor(theirs.Version) && minor(ours.Version) != "" && minor(theirs.Version) != "":
		// liqoctl says that this is not supported.
		return fmt.Sprintf("Liqo is %s here and %s there, which do not work together", ours.Version, theirs.Version)
	}
	return ""
}

// minor returns the version without its patch release, "" if it is none.
func minor(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[0] + "." + parts[1]
}

func called(i *Installation) string {
	if i.Version == "" {
		return string(i.ID)
	}
	return string(i.ID) + " (" + i.Version + ")"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
