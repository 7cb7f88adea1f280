package rbac

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/peer/text"
)

// Options are those of [Install] and [Uninstall].
type Options struct {
	// Admin is a kubeconfig with the rights of an administrator. Its current context
	// counts.
	Admin clientcmdapi.Config
	// Namespace is that of the ServiceAccount.
	Namespace string
	// Out is the path of the agent's kubeconfig.
	Out string
	// Liqo: with the role for Liqo.
	Liqo bool
	// Force takes objects and a file over that are somebody else's.
	Force bool
}

// ErrShared: the namespace has service accounts of others, and whoever has the agent's credential can act as them.
var ErrShared = errors.New("it has service accounts of others")

// alone reports as ErrShared that the namespace is not the agent's alone, unless options say to go on.
func alone(ctx context.Context, client *kube.Client, options Options) error {
	if options.Force {
		return nil
	}
	others, err := strangers(ctx, client, options.Namespace)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("namespace %s: %w: %s. The agent acts for its peers as service accounts of its namespace, so whoever steals its credential could act as these, too: "+
		"set cluster.namespace to one of its own, such as %s", options.Namespace, ErrShared, text.List(others, maxOthers, ", "), Name)
}

// maxOthers is how many service accounts are named.
const maxOthers = 4

// strangers returns the names of the service accounts in the agent's namespace that are neither its own
// nor those of its peers.
func strangers(ctx context.Context, client *kube.Client, namespace string) ([]string, error) {
	var list struct{ Items []identified }
	if err := client.Get(ctx, "/api/v1/namespaces/"+namespace+"/serviceaccounts", &list); err != nil {
		return nil, fmt.Errorf("list the service accounts of namespace %s: %w", namespace, err)
	}
	var others []string
	for _, a := range list.Items {
		if name := a.Metadata.Name; name != Name && name != "default" && !strings.HasPrefix(name, api.PeerAccountPrefix) {
			others = append(others, name)
		}
	}
	return others, nil
}

// Install gives the agent a user of its own: [Apply], then a kubeconfig with its token
// at Out, once that was tried and lacks nothing. Without Force, a namespace with service accounts
// of others is an error that wraps ErrShared. It can be run again at any time, and
// then changes what is not as it should be. It returns what it did, also together with
// an error; the file is written last.
func Install(ctx context.Context, options Options) ([]Change, error) {
	// Whatever can be said at once is said before anything is changed.
	if _, err := writable(options.Out, options.Force); err != nil {
		return nil, err
	}
	client, err := clientOf(options.Admin)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := alone(ctx, client, options); err != nil {
		return nil, err
	}
	done, err := Apply(ctx, client, options)
	if err != nil {
		return done, err
	}
	token, err := Token(ctx, client, options.Namespace)
	if err != nil {
		return done, err
	}
	text, err := Kubeconfig(options.Admin, options.Namespace, token)
	if err != nil {
		return done, err
	}
	if err := try(ctx, text, options.Namespace); err != nil {
		return done, err
	}
	file, err := WriteKubeconfig(options.Out, text, options.Force)
	if err != nil {
		return done, err
	}
	return append(done, file), nil
}

// try waits until a kubeconfig can do what the agent needs.
func try(ctx context.Context, text []byte, namespace string) error {
	config, err := clientcmd.Load(text)
	if err != nil {
		return fmt.Errorf("the agent's kubeconfig: %w", err)
	}
	client, err := clientOf(*config)
	if err != nil {
		return err
	}
	defer client.Close()
	return Await(ctx, client, namespace)
}

// Uninstall takes away what [Install] made, the file first, so that an agent that runs
// looks for another one. It returns what it did, also together with an error.
func Uninstall(ctx context.Context, options Options) ([]Change, error) {
	client, err := clientOf(options.Admin)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	file, err := RemoveKubeconfig(options.Out)
	if err != nil {
		return nil, err
	}
	done, err := Delete(ctx, client, options.Namespace)
	return append([]Change{file}, done...), err
}

func clientOf(config clientcmdapi.Config) (*kube.Client, error) {
	restConfig, err := clientcmd.NewNonInteractiveClientConfig(config, config.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return kube.New(restConfig)
}

// ErrNoKubeconfig: there is no kubeconfig of an administrator at the usual places.
var ErrNoKubeconfig = errors.New("no kubeconfig of an administrator found")

// AdminKubeconfig reads a kubeconfig: the one at path, or without a path what
// $KUBECONFIG names, else the first of places that exists. getenv is as os.Getenv.
func AdminKubeconfig(path string, getenv func(string) string, places ...string) (clientcmdapi.Config, error) {
	var paths []string
	switch list := getenv("KUBECONFIG"); {
	case path != "":
		paths = []string{path}
	case list != "":
		for _, each := range filepath.SplitList(list) {
			if each != "" {
				paths = append(paths, each)
			}
		}
	default:
		for _, place := range places {
			if _, err := os.Stat(place); !errors.Is(err, fs.ErrNotExist) {
				paths = []string{place}
				break
			}
		}
		if paths == nil {
			return clientcmdapi.Config{}, fmt.Errorf("%w: neither $KUBECONFIG nor %s exists", ErrNoKubeconfig, strings.Join(places, " nor "))
		}
	}
	var last error
	exists := false
	for _, each := range paths {
		f, err := os.Open(each)
		if err != nil {
			last = err
			if !errors.Is(err, fs.ErrNotExist) {
				return clientcmdapi.Config{}, fmt.Errorf("kubeconfig of the administrator: %w", err)
			}
			continue
		}
		exists = true
		if err := f.Close(); err != nil {
			return clientcmdapi.Config{}, fmt.Errorf("kubeconfig of the administrator: %w", err)
		}
	}
	if !exists {
		return clientcmdapi.Config{}, fmt.Errorf("%w: %w", ErrNoKubeconfig, last)
	}
	rules := clientcmd.ClientConfigLoadingRules{Precedence: paths}
	merged, err := rules.Load()
	if err != nil {
		return clientcmdapi.Config{}, fmt.Errorf("kubeconfig of the administrator: %w", err)
	}
	if merged.Contexts[merged.CurrentContext] == nil {
		return clientcmdapi.Config{}, fmt.Errorf("kubeconfig of the administrator %s has no current context", strings.Join(paths, ", "))
	}
	if _, err := clientcmd.NewNonInteractiveClientConfig(*merged, merged.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig(); err != nil {
		return clientcmdapi.Config{}, fmt.Errorf("kubeconfig of the administrator %s: %w", strings.Join(paths, ", "), err)
	}
	return *merged, nil
}
