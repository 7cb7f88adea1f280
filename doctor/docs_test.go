package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"liqo.io/agent/internal/generated"
)

const docsFile = "../docs/doctor.md"

// declaredCode finds the codes of findings in the source.
var declaredCode = regexp.MustCompile(`(?:Code: |f\.Code, f\.What = |info\()"([a-z0-9-]+)"`)

// The table of checks is generated, and every code is explained.
func TestDocumentation(t *testing.T) {
	var want strings.Builder
	want.WriteString("| check | what it looks at |\n| --- | --- |\n")
	for _, c := range Checks() {
		fmt.Fprintf(&want, "| `%s` | %s: %s |\n", c.ID, c.Title, c.Looks)
	}
	generated.Section(t, docsFile, "see TestDocumentation -->\n", "<!-- end -->", want.String())
	document, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	codes := []string{"fleet-ca-expired", "fleet-ca-expiring", "fleet-ca-unusable", "fleet-certificate-expired", "fleet-certificate-expiring", "fleet-certificate-unusable"}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range declaredCode.FindAllStringSubmatch(string(source), -1) {
			codes = append(codes, found[1])
		}
	}
	if len(codes) < 50 {
		t.Errorf("only %d codes were found", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(string(document), "`"+code+"`") {
			t.Errorf("%s does not explain %s", docsFile, code)
		}
	}
}

func TestChecks(t *testing.T) {
	seen := make(map[string]bool)
	groups := make(map[string]bool)
	last := ""
	for _, c := range Checks() {
		if seen[c.ID] || c.ID == "" || strings.Trim(c.ID, "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("ID %q", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || !strings.HasSuffix(c.Looks, ".") || c.Limit <= 0 || c.run == nil {
			t.Errorf("%s: %+v", c.ID, c)
		}
		if c.Group != last && groups[c.Group] {
			t.Errorf("%s: group %s comes twice", c.ID, c.Group)
		}
		groups[c.Group], last = true, c.Group
	}
}
