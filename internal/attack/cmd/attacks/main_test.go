package main

import (
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const one = `{"Action":"attr","Package":"p","Test":"TestOne","Key":"attack","Value":"{\"what\":\"read\",\"as\":\"guest\",\"want\":\"403\",\"got\":\"GOT\"}"}
{"Action":"output","Package":"p","Test":"TestOne","Output":"  told so\n"}
`
	for _, c := range []struct {
		name, in, out, err string
	}{
		{"held", strings.Replace(one, "GOT", "403", 1) + `{"Action":"pass","Package":"p","Test":"TestOne"}`,
			"AS     ATTACK  EXPECTED  SEEN\nguest  read    403       403\n", ""},
		{"did not", strings.Replace(one, "GOT", "200", 1) + `{"Action":"fail","Package":"p","Test":"TestOne"}`,
			"p.TestOne:\n  told so\n\nAS     ATTACK  EXPECTED  SEEN\nguest  read    403       200\n", "failed: p.TestOne"},
		{"nothing", "", "AS  ATTACK  EXPECTED  SEEN\n", "no attack was tried"},
		{"no JSON", "FAIL", "", "reading the output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := run(strings.NewReader(c.in), &out)
			if out.String() != c.out {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), c.out)
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}
