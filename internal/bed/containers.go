//go:build linux

package bed

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Image is the one image that nodes with a real kubelet have: busybox and the program of internal/bed/cmd/shop, in /bin.
	Image = "bed.example.com/busybox:1"

	busybox    = "/bin/busybox"
	cniPlugins = "/usr/lib/cni"
)

// busyboxPrograms are the ones that tests use.
var busyboxPrograms = []string{"sh", "cat", "echo", "sleep", "tar", "httpd", "hostname", "env", "id", "ls", "true", "false", "wget", "test", "mkdir", "rm", "dd", "find", "sort", "sha256sum", "sync", "nc", "ping", "printf", "chmod", "nslookup"}

// RealRoot reports whether root here is root on the machine, and not an ordinary user in a user namespace.
func RealRoot() bool {
	m, err := os.ReadFile("/proc/self/uid_map")
	var inside, outside, count uint64
	if err == nil {
		_, err = fmt.Sscan(string(m), &inside, &outside, &count)
	}
	return err == nil && outside == 0
}

// StartKubelet starts containerd and a real kubelet as the host's node, and waits until the node is ready.
// It needs root on the machine: containers get control groups there. Pods get addresses on the host's pod
// network, and the image [Image].
func (k *Kube) StartKubelet(ctx context.Context) error {
	ctx, cancel := deadlineFrom(ctx, Hang)
	defer cancel()
	h := k.Host
	binary := Binary(h.bed.t, "kubelet")
	// Not below the host's overlays: the layers of images are overlays themselves.
	root := filepath.Join(h.dir, "containers")
	files := map[string]string{
		filepath.Join(root, "containerd.toml"):       containerdConfig(root),
		filepath.Join(root, "net.d", "10-bed.conf"):  cniConfig(h.Pods.Node()),
		filepath.Join(root, "kubelet.yaml"):          k.kubeletConfig(root),
		filepath.Join(root, "resolv.conf"):           "nameserver 127.0.0.1\n",
		filepath.Join(root, "state", "cni", ".keep"): "",
	}
	image, err := podImage(Binary(h.bed.t, "shop"))
	if err != nil {
		return err
	}
	archive := filepath.Join(root, "image.tar")
	if err := h.Do(func() error {
		for path, text := range files {
			if err := writeFile(path, text); err != nil {
				return err
			}
		}
		if err := os.WriteFile(archive, image, 0o600); err != nil {
			return err
		}
		return mountControlGroups(controlGroup(h))
	}); err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	// The host may have got another address since its control plane was made.
	if err := k.certifyKubelet(); err != nil {
		return fmt.Errorf("host %s: the kubelet's certificate: %w", h.Name, err)
	}
	socket := filepath.Join(root, "containerd.sock")
	containerd, err := h.start(Cmd{Name: "containerd", Args: []string{"containerd", "--config", filepath.Join(root, "containerd.toml")}})
	if err != nil {
		return err
	}
	var kubelet *Process
	h.bed.t.Cleanup(func() {
		if err := h.endContainers(root, kubelet, containerd); err != nil {
			h.bed.t.Errorf("bed: host %s: end its containers: %v", h.Name, err)
		}
	})
	if err := containerd.poll(ctx, func() error {
		_, err := h.Run(ctx, "ctr", "--address", socket, "--namespace", "k8s.io", "images", "import", archive)
		return err
	}); err != nil {
		return fmt.Errorf("host %s: import the image: %w", h.Name, err)
	}
	cmd := Cmd{Name: "kubelet", Args: []string{binary, "--config=" + filepath.Join(root, "kubelet.yaml"), "--kubeconfig=" + Kubeconfig,
		"--hostname-override=" + h.Name, "--node-ip=" + strings.Join(h.nodeIPs(), ","), "--root-dir=" + filepath.Join(root, "kubelet"), "--cert-dir=" + filepath.Join(root, "pki")}}
	if kubelet, err = h.start(cmd); err != nil {
		return err
	}
	return kubelet.poll(ctx, func() error { return k.kubeletReady(ctx) })
}

// kubeletReady checks that the node's Ready condition is the kubelet's, and true.
func (k *Kube) kubeletReady(ctx context.Context) error {
	text, err := k.Request(ctx, "GET", "/api/v1/nodes/"+k.Host.Name, "", nil)
	if err != nil {
		return err
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := json.Unmarshal(text, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" && strings.Contains(c.Message, "kubelet") {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", node.Status.Conditions)
}

const cgroups = "/sys/fs/cgroup"

// InPod runs fn in the network of one of the host's pods, as [Host.Do] does in the host's. The pod has a real container,
// which runs.
func (h *Host) InPod(pod string, fn func() error) error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	for _, process := range processes {
		groups, _ := os.ReadFile(process + "/cgroup") // nothing if it has ended
		environment, _ := os.ReadFile(process + "/environ")
		if !bytes.Contains(groups, []byte("/"+controlGroup(h)+"/")) || !bytes.Contains(append([]byte{0}, environment...), []byte("\x00HOSTNAME="+pod+"\x00")) {
			continue
		}
		network, err := os.Open(process + "/ns/net")
		if err != nil {
			continue
		}
		defer network.Close()
		ns := &namespaces{files: []*os.File{network}}
		if err := ns.do(fn); err != nil {
			return fmt.Errorf("in pod %s on host %s: %w", pod, h.Name, err)
		}
		return nil
	}
	return fmt.Errorf("host %s runs no container of a pod %s", h.Name, pod)
}

// mountControlGroups shows the machine's control groups, which the host's own /sys hides, and makes one of a
// name in each hierarchy.
func mountControlGroups(name string) error {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if strings.HasPrefix(string(text), "0::") {
		if err := unix.Mount("cgroup2", cgroups, "cgroup2", 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w (containers need root on the machine)", cgroups, err)
		}
		return os.Mkdir(filepath.Join(cgroups, name), 0o755)
	}
	if err := unix.Mount("tmpfs", cgroups, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", cgroups, err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue
		}
		at := filepath.Join(cgroups, strings.TrimPrefix(parts[1], "name="))
		if err := os.Mkdir(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", at, "cgroup", 0, parts[1]); err != nil {
			return fmt.Errorf("mount %s: %w (containers need root on the machine)", at, err)
		}
		if err := os.Mkdir(filepath.Join(at, name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// endContainers ends the kubelet, everything that runs below it, and containerd, and removes their control
// groups: those are the machine's, and shims are nobody's children.
func (h *Host) endContainers(root string, kubelet, containerd *Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), Hang)
	defer cancel()
	var errs []error
	for _, p := range []*Process{kubelet, containerd} {
		if p != nil {
			errs = append(errs, p.Kill())
		}
	}
	errs = append(errs, h.Do(func() error {
		return Poll(ctx, func() error {
			if err := killBelow(root, controlGroup(h)); err != nil {
				return err
			}
			var left []error
			for _, dir := range h.controlGroups() {
				if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
					left = append(left, err)
				}
			}
			return errors.Join(left...)
		})
	}))
	return errors.Join(errs...)
}

// killBelow kills the bed's processes that are in a control group, or were told of a directory: the shims. It
// fails while there are some.
func killBelow(dir, group string) error {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	var left []error
	for _, process := range processes {
		line, _ := os.ReadFile(process + "/cmdline") // nothing if it has ended
		groups, _ := os.ReadFile(process + "/cgroup")
		shim := strings.Contains(string(line), "containerd-shim") && strings.Contains(string(line), dir)
		if !shim && !strings.Contains(string(groups), "/"+group) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		left = append(left, fmt.Errorf("process %d: %w", pid, cmp.Or(err, errRunning)))
	}
	return errors.Join(left...)
}

var errRunning = errors.New("it was still running")

// controlGroups are the directories of the host's control groups, each after those that are in it. It is called
// inside the host.
func (h *Host) controlGroups() []string {
	var out []string
	for _, pattern := range []string{cgroups + "/" + controlGroup(h), cgroups + "/*/" + controlGroup(h)} {
		tops, _ := filepath.Glob(pattern) // the pattern is a good one
		for _, top := range tops {
			// What vanishes meanwhile need not be removed.
			_ = filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					out = append(out, path)
				}
				return nil
			})
		}
	}
	slices.Reverse(out)
	return out
}

func containerdConfig(root string) string {
	return fmt.Sprintf(`version = 2
root = "%[1]s/root"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%[2]s"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%[3]s"
    conf_dir = "%[1]s/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = "%[1]s/runc"
`, root, Image, cniPlugins)
}

// cniConfig is what flannel has the plugin do: a pod reaches itself by a Service, too.
func cniConfig(pods Ranges) string {
	var ranges, routes []string
	for i, gateway := range pods.gateways() {
		all := "0.0.0.0/0"
		if gateway.Addr().Is6() {
			all = "::/0"
		}
		ranges = append(ranges, fmt.Sprintf(`[{"subnet": "%s", "gateway": "%s"}]`, pods[i], gateway.Addr()))
		routes = append(routes, fmt.Sprintf(`{"dst": "%s"}`, all))
	}
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "bed", "type": "bridge", "bridge": "%s", "isGateway": true, "hairpinMode": true,
"ipam": {"type": "host-local", "ranges": [%s], "dataDir": "/run/cni-bed", "routes": [%s]}}
`, clusterBridge, strings.Join(ranges, ", "), strings.Join(routes, ", "))
}

func (k *Kube) kubeletConfig(root string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%[1]s/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[2]s/tls/client-ca.crt}
authorization: {mode: Webhook}
tlsCertFile: %[2]s/tls/serving-kubelet.crt
tlsPrivateKeyFile: %[2]s/tls/serving-kubelet.key
cgroupRoot: /%[3]s
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 1Mi}
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
clusterDNS: [`+DNS+`]
clusterDomain: `+clusterDomain+`
resolvConf: %[1]s/resolv.conf
podLogsDir: %[1]s/logs
syncFrequency: 5s
`, root, kubeDir, controlGroup(k.Host))
}

// controlGroup is the name of the control group of a host's pods: kubelets of other beds have others.
func controlGroup(h *Host) string { return filepath.Base(filepath.Dir(h.dir)) + "-" + h.Name }

// podImage is an image of the machine's busybox and of a program shop, as docker save writes it. Its first program waits for
// ever, so that it serves for the sandboxes of pods as well.
func podImage(shop string) ([]byte, error) {
	box, err := os.ReadFile(busybox)
	if err != nil {
		return nil, fmt.Errorf("%w (install busybox-static: hack/setup.sh)", err)
	}
	program, err := os.ReadFile(shop)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	files := tar.NewWriter(&layer)
	add := func(h tar.Header, content []byte) {
		h.Size, h.ModTime = int64(len(content)), time.Unix(0, 0)
		if err == nil {
			err = files.WriteHeader(&h)
		}
		if err == nil {
			_, err = files.Write(content)
		}
	}
	for _, dir := range []string{"bin/", "tmp/", "etc/", "www/"} {
		add(tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o777}, nil)
	}
	add(tar.Header{Name: "bin/busybox", Typeflag: tar.TypeReg, Mode: 0o755}, box)
	add(tar.Header{Name: "bin/shop", Typeflag: tar.TypeReg, Mode: 0o755}, program)
	for _, name := range busyboxPrograms {
		add(tar.Header{Name: "bin/" + name, Typeflag: tar.TypeSymlink, Linkname: "busybox", Mode: 0o777}, nil)
	}
	if err == nil {
		err = files.Close()
	}
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Cmd": []string{"/bin/sleep", "1000000"}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer.Bytes()))}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"config.json", config}, {"layer.tar", layer.Bytes()}, {"manifest.json", manifest}} {
		if err := archive.WriteHeader(&tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), archive.Close()
}
