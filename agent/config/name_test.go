package config

import (
	"strings"
	"testing"

	"liqo.io/agent/peer"
)

func TestNameOf(t *testing.T) {
	if got := (Cluster{Name: "barn"}).NameOf("0558de48"); got != "barn" {
		t.Errorf("configured name became %q", got)
	}
	got := Cluster{}.NameOf("0558de48-097b")
	if _, err := peer.ParseClusterName(got); err != nil || strings.Contains(got, "localhost") {
		t.Errorf("name without a configured one: %q, %v", got, err)
	}
}
