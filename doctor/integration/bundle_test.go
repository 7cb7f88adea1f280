//go:build linux

package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"liqo.io/agent/doctor/bundle"
	"liqo.io/agent/doctor/bundle/bundletest"
	"liqo.io/agent/internal/bed"
)

// fake puts a program of ours in the place of one of the system's, on this box only.
func (x *box) fake(name, script string) {
	x.t.Helper()
	x.host.WriteFile("/etc/fake-"+name, "#!/bin/sh\n"+script)
	x.shell("chmod", "755", "/etc/fake-"+name)
	x.shell("mount", "--bind", "/etc/fake-"+name, "/usr/bin/"+name)
}

func TestBundle(t *testing.T) {
	t.Parallel()
	x := newBox(t, bed.New(t), "alder", "10.77.0.1", "# password = \"planted-in-the-configuration\"\n[discovery]\ncheck_interval = \"1s\"\n")
	ctx, cancel := context.WithTimeout(t.Context(), 3*soon)
	defer cancel()
	kube := x.host.StartKube(ctx)
	x.start()
	x.eventually("is connected", func() error {
		if st := x.status(); !st.Kubernetes.Connected {
			return errors.New(st.Kubernetes.LastError)
		}
		return nil
	})

	secrets := map[string]string{
		"the configuration's comment": "planted-in-the-configuration", "a Secret": "planted-in-a-secret", "an annotation": "planted-in-an-annotation",
		"the environment": "planted-in-the-environment", "the unit": "planted-in-the-unit", "the log": "planted-in-the-log", "the log's URL": "planted-in-a-url",
	}
	var invite struct{ Token string }
	if err := json.Unmarshal([]byte(x.must("invite", "-o", "json")), &invite); err != nil || invite.Token == "" {
		t.Fatalf("%+v, %v", invite, err)
	}
	secrets["an invite"] = invite.Token
	key, err := os.ReadFile(x.host.Path(stateDir + "/cluster.key"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Fields(string(key)) {
		if len(line) > 30 {
			secrets["line "+string(rune('0'+i))+" of the cluster key"] = line
		}
	}
	kubeconfig, err := os.ReadFile(x.host.Path("/etc/rancher/k3s/k3s.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(kubeconfig)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && (name == "client-key-data" || name == "token") {
			secrets["the kubeconfig's "+name] = strings.Trim(value, `"`)
			if raw, err := base64.StdEncoding.DecodeString(value); err == nil {
				secrets["a line of the kubeconfig's key"] = strings.Split(string(raw), "\n")[1]
			}
		}
	}
	if len(secrets) < 10 {
		t.Fatalf("too few secrets were found to look for: %v", secrets)
	}
	for _, args := range [][]string{
		{"create", "secret", "generic", "x", "--from-literal=password=planted-in-a-secret"},
		{"annotate", "clusterconfigs", "liqo-configuration", `example.com/note={"password":"planted-in-an-annotation"}`},
	} {
		x.eventually("kubectl "+args[0], func() error {
			_, err := kube.Kubectl(ctx, args...)
			return err
		})
	}
	x.fake("systemctl", "echo '[Service]'; echo 'Environment=\"LIQO_AGENT_TOKEN=planted-in-the-unit\"'; echo 'ExecStart=/usr/bin/liqo-agent run'")
	x.fake("journalctl", "echo 'level=INFO msg=started token=planted-in-the-log'; echo 'get https://joe:planted-in-a-url@proxy:1 failed'; echo '"+invite.Token+"'; sed 's/^/key: /' "+stateDir+"/cluster.key; grep client-key /etc/rancher/k3s/k3s.yaml")

	for _, redact := range []bool{false, true} {
		path, args := "/etc/support.tar.gz", []string{x.bin, "doctor", "--bundle", "/etc/support.tar.gz"}
		if redact {
			path = "/etc/redacted.tar.gz"
			args = []string{x.bin, "doctor", "--redact", "--bundle", path}
		}
		if out, err := x.host.Run(ctx, append([]string{"env", "LIQO_AGENT_TOKEN=planted-in-the-environment"}, args...)...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := os.Stat(x.host.Path(path))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
		files := bundletest.Unpack(t, x.host.Path(path))
		for name, content := range files {
			for where, secret := range secrets {
				if strings.Contains(content, secret) {
					t.Errorf("%s holds the secret of %s", name, where)
				}
			}
			if redact && (strings.Contains(content, "10.77.0.1") || strings.Contains(content, "alder")) {
				t.Errorf("%s holds an address or name", name)
			}
			if strings.HasSuffix(name, ".json") && !json.Valid([]byte(content)) {
				t.Errorf("%s is no JSON any more: %s", name, content)
			}
		}
		var m bundle.Manifest
		if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
			t.Fatal(err)
		}
		for _, left := range m.LeftOut {
			t.Logf("left out: %+v", left)
			if left.Name != "metrics.txt" && left.Name != "peering.txt" && left.Name != "goroutines.txt" {
				t.Errorf("left out: %+v", left)
			}
		}
		if len(m.Files) != len(files)-1 || m.Redacted != redact {
			t.Errorf("the manifest lists %d files of %d", len(m.Files), len(files)-1)
		}
		if redact {
			continue
		}
		for name, want := range map[string]string{
			"status.json": `"connected": true`, "peers.json": "[", "doctor.json": `"multicast"`, "config.toml": "check_interval", "versions.txt": "Kubernetes: v",
			"links.json": "10.77.0.1/24", "routes.txt": "10.77.0.0/24", "journal.txt": "msg=started", "unit.txt": "ExecStart=/usr/bin/liqo-agent run",
			"history.json": "[", "kubernetes/crd-foreignclusters.discovery.liqo.io.yaml": "openAPIV3Schema", "kubernetes/clusterconfigs.yaml": "liqo-configuration",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("%s does not hold %q: %.500s", name, want, files[name])
			}
		}
	}
	// Once more to the same place changes nothing.
	if out, err := x.host.Run(ctx, x.bin, "doctor", "--bundle", "/etc/support.tar.gz"); err == nil {
		t.Errorf("the archive was overwritten: %s", out)
	}
}
