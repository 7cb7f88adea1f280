package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

// What is used of CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).
type (
	document struct {
		Schema       string       `json:"$schema"`
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     metadata     `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		Hashes     []digest   `json:"hashes,omitempty"`
		PURL       string     `json:"purl"`
		Properties []property `json:"properties,omitempty"`
	}
	digest struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref string   `json:"ref"`
		On  []string `json:"dependsOn,omitempty"`
	}
)

// bom describes a binary by what the Go tool noted in it: the modules that it was linked from with the sums of go.sum,
// the standard library, and how it was built. Which module needs which other one is not noted.
func bom(path string, info *buildinfo.BuildInfo, version string, at time.Time) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	self := component{
		Type: "application", Name: "liqo-agent", Version: version,
		PURL:       purl(info.Main.Path, version),
		Hashes:     []digest{{"SHA-256", hex.EncodeToString(sum[:])}},
		Properties: []property{{"go:version", info.GoVersion}},
	}
	for _, s := range info.Settings {
		if strings.HasPrefix(s.Key, "GO") || strings.HasPrefix(s.Key, "vcs") || s.Key == "CGO_ENABLED" || s.Key == "-trimpath" {
			self.Properties = append(self.Properties, property{"go:build:" + s.Key, s.Value})
		}
	}
	self.Ref = self.PURL
	d := document{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6",
		// A serial number that is the document's, and the same whenever it is made again (RFC 9562, version 8).
		SerialNumber: fmt.Sprintf("urn:uuid:%x-%x-8%03x-8%03x-%x", sum[0:4], sum[4:6], uint16(sum[6])<<8&0xf00|uint16(sum[7]), uint16(sum[8])<<8&0xf00|uint16(sum[9]), sum[10:16]),
		Version:      1,
		Metadata:     metadata{Timestamp: at.Format(time.RFC3339), Component: self},
	}
	std := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
	d.Components = append(d.Components, library("std", std, ""))
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, library(m.Path, m.Version, m.Sum))
	}
	all := dependency{Ref: self.Ref}
	for _, c := range d.Components {
		all.On = append(all.On, c.Ref)
	}
	d.Dependencies = []dependency{all}
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), err
}

func library(path, version, sum string) component {
	c := component{Type: "library", Name: path, Version: version, PURL: purl(path, version)}
	c.Ref = c.PURL
	if sum != "" {
		// A hash over the files of the module, not over one file: no "hashes" of CycloneDX.
		c.Properties = []property{{"go:sum", sum}}
	}
	return c
}

// purl is the package URL of a Go module (https://github.com/package-url/purl-spec).
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}
