package main

import "testing"

func TestBuildInfo(t *testing.T) {
	if v, c := buildInfo("v1.2.3", "abc"); v != "v1.2.3" || c != "abc" {
		t.Errorf("what the linker was told is not used: %s %s", v, c)
	}
	if v, _ := buildInfo("", ""); v == "" || v == "(devel)" {
		t.Errorf("version %q of a plain build", v)
	}
}
