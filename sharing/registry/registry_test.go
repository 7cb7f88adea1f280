package registry

import (
	"strings"
	"testing"

	"github.com/distribution/reference"
)

func TestOf(t *testing.T) {
	for image, want := range map[string]string{
		"nginx":                          "docker.io",
		"nginx:1":                        "docker.io",
		"bitnami/nginx":                  "docker.io",
		"library/nginx@sha256:" + digest: "docker.io",
		"docker.io/nginx":                "docker.io",
		"index.docker.io/library/nginx":  "docker.io",
		"localhost/nginx":                "localhost",
		"localhost:5000/nginx":           "localhost:5000",
		"registry/nginx":                 "docker.io", // a user's name there
		"registry:5000/nginx":            "registry:5000",
		"Registry/nginx":                 "registry",
		"ghcr.io/a/b:v1":                 "ghcr.io",
		"GHCR.io/a/b:v1":                 "ghcr.io",
		"ghcr.io:443/a/b":                "ghcr.io:443",
		"192.0.2.1/a":                    "192.0.2.1",
		"192.0.2.1:5000/a":               "192.0.2.1:5000",
		"[2001:db8::1]:5000/a":           "[2001:db8::1]:5000",
		"ghcr.io@sha256:" + digest:       "docker.io",
		"ghcr.io":                        "docker.io", // an image called ghcr.io
		"registry.example.com/a/b/c:1@sha256:" + digest: "registry.example.com",
	} {
		if got, err := Of(image); got != want || err != nil {
			t.Errorf("%s is from %q (%v), want %s", image, got, err, want)
		}
	}
	for _, image := range []string{
		"", " nginx", "nginx ", "Nginx", "ghcr.io/A/b", "ghcr.io//b", "ghcr.io/", "/nginx", "https://ghcr.io/a/b", "ghcr.io\\@192.0.2.1/a", "user@ghcr.io/a",
		"ghcr.io./a/b", "ghcr.io:5000:5000/a", "ghcr_io.com\n/a", digest, "a:b:c", "ghcr.io/a?x", "ghcr.io/a/../b", "ghcr.io/%61", strings.Repeat("a", 300),
		"ghcr.io/" + strings.Repeat("a/", 2000) + "a", "ghcrıo.io/a",
	} {
		if got, err := Of(image); err == nil {
			t.Errorf("%q is from %q", image, got)
		}
	}
}

const digest = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestPublic(t *testing.T) {
	for name, public := range map[string]bool{
		"docker.io": true, "ghcr.io": true, "registry.k8s.io": true, "public.ecr.aws": true, "registry.example.com": true, "registry.example.com:5000": true,
		"a.b.example.co.uk": true, "europe-docker.pkg.dev": true, "0123.dkr.ecr.eu-west-1.amazonaws.com": true, "team.azurecr.io": true,

		"192.0.2.1": false, "192.0.2.1:5000": false, "8.8.8.8": false, "[2001:db8::1]": false, "[2001:db8::1]:5000": false, "[::1]": false, "::1": false,
		"[::ffff:192.0.2.1]:5000": false, "127.1": false, "127.1:5000": false, "0x7f.0.0.1": false, "0x7f.1": false, "2130706433": false, "2130706433:80": false, "1.2.3.04": false,
		"localhost": false, "localhost:5000": false, "LOCALHOST": false, "a.localhost": false,
		"registry": false, "registry:5000": false, "kubernetes": false,
		"registry.local": false, "registry.lan": false, "registry.internal": false, "registry.home.arpa": false, "registry.corp": false, "registry.test": false,
		"registry.default.svc": false, "registry.default.svc.cluster.local": false, "registry.default.svc.cluster.local:5000": false, "kubernetes.default": false,
		"1.0.0.127.in-addr.arpa": false, "com": false, "co.uk": false, "": false, ":5000": false, "registry.example.com:": false, ".": false,
	} {
		if err := Public(name); (err == nil) != public {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCheckEntry(t *testing.T) {
	for _, entry := range append(Defaults(), "*.azurecr.io", "registry.example.com:5000", "*.dkr.ecr.eu-west-1.amazonaws.com") {
		if err := CheckEntry(entry); err != nil {
			t.Errorf("%q: %v", entry, err)
		}
	}
	for _, entry := range []string{
		"", "*", "*.", "**.example.com", "ghcr.io/", "ghcr.io/team", "https://ghcr.io", "GHCR.io", "*.own", "192.0.2.1:5000", "[2001:db8::1]:5000", "localhost:5000", "registry:5000",
		"registry.local", "index.docker.io", "ghcr.*", "a.*.example.com", "ghcr.io:", "ghcr.io:x", " ghcr.io", "*.com", "com",
	} {
		if CheckEntry(entry) == nil {
			t.Errorf("%q is taken", entry)
		}
	}
}

func TestAllows(t *testing.T) {
	l := List{Entries: []string{"docker.io", "*.example.com", "registry.example.org:5000", Own}, Own: []string{"own.example.net", "own.example.net:5000"}}
	for image, allowed := range map[string]bool{
		"nginx": true, "docker.io/a": true, "ghcr.io/a/b": false, "a.example.com/x": true, "a.b.example.com/x": true, "example.com/x": false, "aexample.com/x": false,
		"a.example.com:5000/x": false, "registry.example.org:5000/x": true, "registry.example.org/x": false, "registry.example.org:5001/x": false,
		"own.example.net/x": true, "own.example.net:5000/x": true, "own.example.net:443/x": false, "docker.io:443/x": false, "docker.io.example.net/x": false, "Nginx": false,
	} {
		if l.AllowsImage(image) != allowed {
			t.Errorf("%s: allowed is %v", image, !allowed)
		}
	}
	careless := List{Entries: []string{"localhost:5000", "192.0.2.1", "registry.local", "registry", Own}, Own: []string{"[2001:db8::1]:80", "kubernetes:443"}}
	for _, registry := range append(careless.Entries, careless.Own...) {
		if careless.Allows(registry) {
			t.Errorf("%s is allowed because it is on the list", registry)
		}
	}
}

func TestKnown(t *testing.T) {
	for _, tc := range []struct {
		list List
		want bool
	}{
		{List{Entries: []string{"docker.io", Own}}, false},
		{List{Entries: []string{"docker.io", Own}, Own: []string{}}, true},
		{List{Entries: []string{"docker.io"}}, true},
		{List{}, true},
	} {
		if got := tc.list.Known(); got != tc.want {
			t.Errorf("%+v: %v", tc.list, got)
		}
	}
}

// FuzzOf: what is read as the registry of an image is what container runtimes call,
// who write the name out first (ParseDockerRef).
func FuzzOf(f *testing.F) {
	for _, image := range []string{"nginx", "ghcr.io/a/b:1@sha256:" + digest, "localhost:5000/a", "[::1]:5000/a", "A/b", "index.docker.io/x", digest} {
		f.Add(image)
	}
	l := List{Entries: []string{"docker.io", "*.example.com", Own}, Own: []string{"localhost", "127.0.0.1"}}
	f.Fuzz(func(t *testing.T, image string) {
		registry, err := Of(image)
		pulled, pullErr := reference.ParseDockerRef(image)
		if err != nil {
			if pullErr == nil && len(image) <= maxImage {
				t.Fatalf("%q is refused (%v), and pulled as %s", image, err, pulled)
			}
			return
		}
		if pullErr != nil {
			return // never pulled
		}
		host, _, _ := strings.Cut(pulled.String(), "/")
		if !strings.EqualFold(host, registry) {
			t.Fatalf("%q is taken for one of %s, and pulled from %s", image, registry, host)
		}
		if l.AllowsImage(image) && host != "docker.io" && !strings.HasSuffix(strings.ToLower(host), ".example.com") {
			t.Fatalf("%q is allowed, from %s", image, host)
		}
	})
}
