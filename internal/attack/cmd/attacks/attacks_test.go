package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const document = `# Security

## A guest

Some prose.

| attempt | what happens | shown by |
| --- | --- | --- |
| read ` + "`regcred`" + ` | [refused](x.md#y) | ` + "`p/q.TestOne`, `p.FuzzTwo`" + ` |
| look around | nothing | |

| other | table | here |
| --- | --- | --- |
| a | b | ` + "`p.TestThree`" + ` |
`

func TestDocument(t *testing.T) {
	rows := parse(document)
	if len(rows) != 2 || rows[0].as != "A guest" || rows[0].what != "read regcred" || rows[0].expected != "refused" || len(rows[1].tests) != 0 {
		t.Fatalf("parsed %+v", rows)
	}
	for _, c := range []struct {
		modules []string
		want    map[string]selection
	}{
		{nil, map[string]selection{".": {[]string{"FuzzTwo", "TestOne"}, []string{"./p", "./p/q"}}}},
		{[]string{".", "p", "pp"}, map[string]selection{"p": {[]string{"FuzzTwo", "TestOne"}, []string{"./", "./q"}}}},
		{[]string{"p/q"}, map[string]selection{".": {[]string{"FuzzTwo"}, []string{"./p"}}, "p/q": {[]string{"TestOne"}, []string{"./"}}}},
	} {
		if got := tests(rows, c.modules); !reflect.DeepEqual(got, c.want) {
			t.Errorf("with modules %q: %q, want %q", c.modules, got, c.want)
		}
	}
}

// The document of this repository is one that it can read.
func TestSecurity(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	if rows := parse(string(text)); len(rows) < 50 {
		t.Errorf("found only %d attempts in docs/security.md", len(rows))
	}
}

func TestTable(t *testing.T) {
	const (
		one = `{"Action":"attr","Package":"liqo.io/agent/p/q","Test":"TestOne/sub","Key":"attack","Value":"{\"what\":\"by name\",\"as\":\"guest\",\"want\":\"403\",\"got\":\"GOT\"}"}
{"Action":"output","Package":"liqo.io/agent/p/q","Test":"TestOne/sub","Output":"  told so\n"}
{"Action":"END","Package":"liqo.io/agent/p/q","Test":"TestOne/sub"}
{"Action":"END","Package":"liqo.io/agent/p/q","Test":"TestOne"}
`
		two = `{"Action":"END","Package":"liqo.io/agent/p","Test":"FuzzTwo"}`
	)
	for _, c := range []struct{ name, in, seen, err string }{
		{"held", strings.NewReplacer("GOT", "403", "END", "pass").Replace(one + two), "as expected", ""},
		{"did not", strings.NewReplacer("GOT", "200", "END", "fail").Replace(one) + strings.ReplaceAll(two, "END", "pass"), "FAILED: p/q.TestOne", "1 tests and packages failed"},
		{"left out", strings.NewReplacer("GOT", "403", "END", "skip").Replace(one) + strings.ReplaceAll(two, "END", "pass"), "left out: p/q.TestOne", ""},
		{"not run", strings.NewReplacer("GOT", "403", "END", "pass").Replace(one), "not run: p.FuzzTwo", "1 tests were not run"},
		{"does not compile", `{"Action":"fail","Package":"liqo.io/agent/p"}`, "not run: p/q.TestOne", "1 tests and packages failed, 2 tests were not run"},
	} {
		t.Run(c.name, func(t *testing.T) {
			results := make(map[string]*result)
			if err := read(strings.NewReader(c.in), results); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := write(&out, parse(document), results)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if !strings.Contains(out.String(), c.seen) || !strings.Contains(out.String(), "no test") {
				t.Errorf("printed\n%s\nwithout %q or without that a row has no test", &out, c.seen)
			}
			if c.seen == "FAILED: p/q.TestOne" && (!strings.Contains(out.String(), "told so") || !strings.Contains(out.String(), "200")) {
				t.Errorf("does not say what was seen:\n%s", &out)
			}
		})
	}
	if err := read(strings.NewReader("FAIL"), make(map[string]*result)); err == nil {
		t.Error("took what is no JSON")
	}
}

func TestWrap(t *testing.T) {
	if got := wrap("  one two three", 9); !slices.Equal(got, []string{"  one two", "  three"}) {
		t.Errorf("wrapped to %q", got)
	}
}
