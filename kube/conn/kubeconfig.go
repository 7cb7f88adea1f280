package conn

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// KubeconfigNone is the setting that says to work without an API server.
const KubeconfigNone = "none"

const (
	// AgentKubeconfig is where the kubeconfig of the agent's own user is, which
	// "liqo-agent rbac --apply" writes.
	AgentKubeconfig = "/etc/liqo-agent/kubeconfig"
	// K3sKubeconfig is where K3s writes the administrator's kubeconfig.
	K3sKubeconfig = "/etc/rancher/k3s/k3s.yaml"
)

var (
	// ErrNoKubeconfig: no kubeconfig exists at any of the places looked at.
	ErrNoKubeconfig = errors.New("no kubeconfig found")
	// ErrSwitchedOff: the setting says to work without an API server.
	ErrSwitchedOff = errors.New("switched off by the setting kubeconfig = \"none\"")
)

// locator finds the kubeconfig in use.
type locator struct {
	getenv func(string) string
	own    string // path of AgentKubeconfig
	k3s    string // path of K3sKubeconfig
}

func newLocator() locator {
	return locator{getenv: os.Getenv, own: AgentKubeconfig, k3s: K3sKubeconfig}
}

// kubeconfig is one state of the files that say how to reach the API server.
type kubeconfig struct {
	paths  []string
	stamp  string   // changes when a file is replaced or written to
	digest [32]byte // of the contents
	config *rest.Config
}

// find returns the files in use, without reading them, and a stamp that changes
// when one of them may have: size, time and inode. A setting or $KUBECONFIG
// stands for itself, also while its file does not exist; else the first of the
// usual places that exists is taken, the one of the agent's own user before those
// of administrators. It costs a stat per place.
func (l locator) find(setting string) (kubeconfig, error) {
	switch setting {
	case KubeconfigNone:
		return kubeconfig{}, ErrSwitchedOff
	case "":
	default:
		return statAll([]string{setting})
	}
	if list := l.getenv("KUBECONFIG"); list != "" {
		var paths []string
		for _, path := range filepath.SplitList(list) {
			if path != "" {
				paths = append(paths, path)
			}
		}
		return statAll(paths)
	}
	places := []string{l.own, l.k3s}
	if home := l.getenv("HOME"); home != "" {
		places = append(places, filepath.Join(home, ".kube", "config"))
	}
	for _, path := range places {
		found, err := statAll([]string{path})
		if !errors.Is(err, ErrNoKubeconfig) {
			return found, err
		}
	}
	return kubeconfig{}, fmt.Errorf("%w: neither $KUBECONFIG nor %s exists", ErrNoKubeconfig, strings.Join(places, " nor "))
}

func statAll(paths []string) (kubeconfig, error) {
	var stamp strings.Builder
	exists := false
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return kubeconfig{}, fmt.Errorf("kubeconfig: %w", err)
		case info.IsDir():
			return kubeconfig{}, fmt.Errorf("kubeconfig %s is a directory, a file is wanted", path)
		}
		exists = true
		fmt.Fprintf(&stamp, "%s %d %d %v\n", path, info.Size(), info.ModTime().UnixNano(), inode(info))
	}
	if !exists {
		return kubeconfig{}, fmt.Errorf("%w: %s does not exist", ErrNoKubeconfig, strings.Join(paths, ", "))
	}
	return kubeconfig{paths: paths, stamp: stamp.String()}, nil
}

// inode tells a file from another one that was renamed over it.
func inode(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino)
	}
	return 0
}

// read completes a kubeconfig that find returned with what its files say.
func (k kubeconfig) read() (kubeconfig, error) {
	digest := sha256.New()
	for _, path := range k.paths {
		text, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			return k, fmt.Errorf("kubeconfig: %w; run as root, or let the agent's user read it", err)
		case err != nil:
			return k, fmt.Errorf("kubeconfig: %w", err)
		}
		digest.Write(text)
	}
	digest.Sum(k.digest[:0])
	rules := clientcmd.ClientConfigLoadingRules{Precedence: k.paths, WarnIfAllMissing: false}
	merged, err := rules.Load()
	if err != nil {
		return k, fmt.Errorf("kubeconfig: %w", err)
	}
	// The non-interactive client configuration of exactly these files: unlike the
	// usual one it never falls back to the environment of a pod.
	config, err := clientcmd.NewNonInteractiveClientConfig(*merged, merged.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return k, fmt.Errorf("kubeconfig %s: %w", k.name(), err)
	}
	k.config = config
	return k, nil
}

// load finds and reads the kubeconfig.
func (l locator) load(setting string) (kubeconfig, error) {
	found, err := l.find(setting)
	if err != nil {
		return kubeconfig{}, err
	}
	return found.read()
}

// LoadKubeconfig finds and reads the kubeconfig that an agent with this setting, as in
// [Config], uses in this environment, and returns its place or places, too.
// The error wraps ErrNoKubeconfig or ErrSwitchedOff where that is why there is none.
func LoadKubeconfig(setting string) (config *rest.Config, place string, err error) {
	found, err := newLocator().load(setting)
	if err != nil {
		return nil, found.name(), err
	}
	return found.config, found.name(), nil
}

// name is the kubeconfig's place, for people.
func (k kubeconfig) name() string { return strings.Join(k.paths, string(filepath.ListSeparator)) }
