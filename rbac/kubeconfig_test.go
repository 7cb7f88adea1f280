package rbac

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// token is one of a user's that no API server would accept.
func token(subject string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(`{"alg":"none"}`)) + "." + b64([]byte(`{"sub":"`+subject+`"}`)) + ".c2ln"
}

// administrator is a kubeconfig as K3s writes it, with a second context.
func administrator() clientcmdapi.Config {
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"default": {Server: "https://127.0.0.1:6443", CertificateAuthorityData: []byte("authority"), TLSServerName: "k3s", ProxyURL: "http://192.0.2.1:3128"},
			"other":   {Server: "https://192.0.2.7:6443"},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			"default": {ClientCertificateData: []byte("certificate"), ClientKeyData: []byte("PRIVATE"), ClientCertificate: "/nowhere/admin.crt"},
		},
		Contexts: map[string]*clientcmdapi.Context{
			"default": {Cluster: "default", AuthInfo: "default"}, "other": {Cluster: "other", AuthInfo: "default"}, "lost": {Cluster: "gone"},
		},
		CurrentContext: "default",
	}
}

func ours(t *testing.T) []byte {
	t.Helper()
	text, err := Kubeconfig(administrator(), "liqo", token(ServiceAccount("liqo")))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestKubeconfig(t *testing.T) {
	text := ours(t)
	for _, secret := range []string{"PRIVATE", base64.StdEncoding.EncodeToString([]byte("PRIVATE")), "client-key", "client-certificate", "192.0.2.7", "nowhere"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("it has %q:\n%s", secret, text)
		}
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:6443" || string(config.CAData) != "authority" || config.ServerName != "k3s" ||
		config.Proxy == nil || config.BearerToken != token("system:serviceaccount:liqo:liqo-agent") {
		t.Errorf("it says %+v", config)
	}
	if again := ours(t); string(again) != string(text) {
		t.Error("the same gives something else")
	}

	// An authority in a file comes along; one that is not there cannot.
	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := administrator()
	admin.Clusters["default"].CertificateAuthorityData, admin.Clusters["default"].CertificateAuthority = nil, file
	text, err = Kubeconfig(admin, "liqo", token(ServiceAccount("liqo")))
	if err != nil || !strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte("from a file"))) {
		t.Errorf("an authority in a file: %v\n%s", err, text)
	}
	admin.Clusters["default"].CertificateAuthority = filepath.Join(dir, "absent")
	if _, err := Kubeconfig(admin, "liqo", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an authority that is not there: %v", err)
	}
	for _, context := range []string{"absent", "", "lost"} {
		admin := administrator()
		admin.CurrentContext = context
		if text, err := Kubeconfig(admin, "liqo", "x"); err == nil {
			t.Errorf("context %q gives\n%s", context, text)
		}
	}
}

func TestOurs(t *testing.T) {
	with := func(change func(*clientcmdapi.Config)) []byte {
		config, err := clientcmd.Load(ours(t))
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		text, err := clientcmd.Write(*config)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	as := func(token string) []byte {
		return with(func(c *clientcmdapi.Config) { c.AuthInfos[Name].Token = token })
	}
	for name, tc := range map[string]struct {
		text []byte
		want bool
	}{
		"what we make":           {ours(t), true},
		"in another namespace":   {as(token("system:serviceaccount:edge:liqo-agent")), true},
		"of another account":     {as(token("system:serviceaccount:liqo:admin")), false},
		"of an account like it":  {as(token("system:serviceaccount:liqo:my-liqo-agent")), false},
		"of a person":            {as(token("liqo-agent")), false},
		"without a token":        {as(""), false},
		"with a bad token":       {as("a.%%%.c"), false},
		"with another token":     {as("a.b.c"), false},
		"with two users":         {with(func(c *clientcmdapi.Config) { c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{} }), false},
		"the administrator's":    {with(func(c *clientcmdapi.Config) { c.AuthInfos = administrator().AuthInfos }), false},
		"nothing":                {nil, false},
		"something else":         {[]byte("listen = \":6447\"\n"), false},
		"something like a token": {[]byte("users: [{name: liqo-agent}]"), false},
	} {
		if got := Ours(tc.text); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWriteKubeconfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etc", "liqo-agent", "kubeconfig")
	text := ours(t)
	write := func(text []byte, force bool, want Result, wantErr error) {
		t.Helper()
		change, err := WriteKubeconfig(path, text, force)
		if !errors.Is(err, wantErr) || err == nil && change != (Change{Kind: "File", Name: path, Result: want}) {
			t.Errorf("%+v, %v, want %s, %v", change, err, want, wantErr)
		}
	}
	look := func(want string) os.FileInfo {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		found, err := os.ReadFile(path)
		if err != nil || string(found) != want || info.Mode() != 0o600 {
			t.Errorf("%v, mode %v:\n%s", err, info.Mode(), found)
		}
		if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
			t.Errorf("beside it: %v, %v", left, err)
		}
		return info
	}
	write(text, false, Created, nil)
	first := look(string(text))
	write(text, false, Unchanged, nil)
	if second := look(string(text)); !os.SameFile(first, second) || !first.ModTime().Equal(second.ModTime()) {
		t.Error("what was right was written again")
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	write(text, false, Changed, nil)
	look(string(text))
	other, err := Kubeconfig(administrator(), "liqo", token(ServiceAccount("edge")))
	if err != nil {
		t.Fatal(err)
	}
	write(other, false, Changed, nil)
	look(string(other))

	// Somebody else's is left alone until they say otherwise.
	for _, foreign := range []string{"", "mine", strings.Repeat("x", maxKubeconfig+1)} {
		if err := os.WriteFile(path, []byte(foreign), 0o600); err != nil {
			t.Fatal(err)
		}
		write(text, false, "", ErrForeign)
		look(foreign)
		if change, err := RemoveKubeconfig(path); len(foreign) <= maxKubeconfig && (err != nil || change.Result != Kept) {
			t.Errorf("removing it: %+v, %v", change, err)
		}
		look(foreign)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(text, true, Changed, nil)
	look(string(text))

	if change, err := RemoveKubeconfig(path); err != nil || change.Result != Deleted {
		t.Errorf("%+v, %v", change, err)
	}
	if change, err := RemoveKubeconfig(path); err != nil || change.Result != Missing {
		t.Errorf("%+v, %v", change, err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	write(text, false, "", ErrForeign)
	write(text, true, "", ErrForeign) // nobody wants a directory gone
}

func TestAdminKubeconfig(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	put := func(name, server string) {
		t.Helper()
		config := administrator()
		config.Clusters["default"].Server = server
		config.AuthInfos["default"].ClientCertificate = ""
		if err := clientcmd.WriteToFile(config, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	put("flag", "https://flag")
	put("env", "https://env")
	put("k3s", "https://k3s")
	put("home", "https://home")
	if err := os.WriteFile(at("broken"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("empty"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path, env string
		places          []string
		want            string // server, or part of the error
		is              error
	}{
		{name: "the option", path: "flag", env: "env", places: []string{"k3s"}, want: "https://flag"},
		{name: "the environment", env: "env", places: []string{"k3s"}, want: "https://env"},
		{name: "a list in it", env: "absent:env", places: []string{"k3s"}, want: "https://env"},
		{name: "K3s", places: []string{"k3s", "home"}, want: "https://k3s"},
		{name: "home", places: []string{"absent", "home"}, want: "https://home"},
		{name: "nowhere", places: []string{"absent", "gone"}, want: "gone exists", is: ErrNoKubeconfig},
		{name: "the option names nothing", path: "absent", places: []string{"k3s"}, want: "absent", is: ErrNoKubeconfig},
		{name: "broken", path: "broken", want: "broken"},
		{name: "empty", path: "empty", want: "no current context"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := ""
			for i, name := range strings.Split(tc.env, ":") {
				if tc.env == "" {
					break
				}
				if i > 0 {
					env += ":"
				}
				env += at(name)
			}
			path := tc.path
			if path != "" {
				path = at(path)
			}
			var places []string
			for _, name := range tc.places {
				places = append(places, at(name))
			}
			config, err := AdminKubeconfig(path, func(string) string { return env }, places...)
			if strings.HasPrefix(tc.want, "https://") {
				if err != nil || config.Clusters["default"].Server != tc.want {
					t.Errorf("%+v, %v, want %s", config, err, tc.want)
				}
			} else if err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v, want %q, %v", err, tc.want, tc.is)
			}
		})
	}
}
