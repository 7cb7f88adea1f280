package rbac

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// User is the user of the system that the agent runs as, and that owns the file
	// when it exists.
	User = "liqo-agent"

	kindFile = "File"

	maxKubeconfig = 1 << 20 // bytes of a file that may be one
	kubeconfigDir = 0o755
)

// ErrForeign: a file is there that is not one of ours.
var ErrForeign = errors.New("it is not a kubeconfig of the agent's own user")

// Kubeconfig returns a kubeconfig with a token, for the API server and the authority
// that the current context of an administrator's kubeconfig names. Nothing of the
// administrator's credentials is in it. What admin refers to by file is read.
func Kubeconfig(admin clientcmdapi.Config, namespace, token string) ([]byte, error) {
	admin = *admin.DeepCopy()
	if err := clientcmdapi.MinifyConfig(&admin); err != nil {
		return nil, fmt.Errorf("kubeconfig of the administrator: %w", err)
	}
	admin.AuthInfos = nil // flattening must not need them
	if err := clientcmdapi.FlattenConfig(&admin); err != nil {
		return nil, fmt.Errorf("kubeconfig of the administrator: %w", err)
	}
	cluster := admin.Clusters[admin.Contexts[admin.CurrentContext].Cluster]
	if cluster == nil || cluster.Server == "" {
		return nil, fmt.Errorf("kubeconfig of the administrator: context %q names no API server", admin.CurrentContext)
	}
	cluster.LocationOfOrigin, cluster.Extensions = "", nil
	config := clientcmdapi.NewConfig()
	config.Clusters[Name] = cluster
	config.AuthInfos[Name] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[Name] = &clientcmdapi.Context{Cluster: Name, AuthInfo: Name, Namespace: namespace}
	config.CurrentContext = Name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return text, nil
}

// owner returns the user that a token of a ServiceAccount is for, "" when it is no
// such token. It is not checked: that is up to the API server.
func owner(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(text, &claims) != nil {
		return ""
	}
	return claims.Subject
}

// Ours reports whether text is a kubeconfig as [Kubeconfig] makes it: of one user, a
// ServiceAccount of our name, by its token.
func Ours(text []byte) bool {
	config, err := clientcmd.Load(text)
	if err != nil || len(config.AuthInfos) != 1 || config.AuthInfos[Name] == nil {
		return false
	}
	account, found := strings.CutPrefix(owner(config.AuthInfos[Name].Token), "system:serviceaccount:")
	return found && strings.HasSuffix(account, ":"+Name)
}

// writable reports whether a kubeconfig may be put somewhere: the error wraps
// ErrForeign when another file is there. found is what is there, nil for nothing.
func writable(path string, force bool) (found []byte, err error) {
	found, err = readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !force && !Ours(found):
		return nil, fmt.Errorf("%s exists: %w", path, ErrForeign)
	}
	return found, nil
}

// WriteKubeconfig puts a kubeconfig where the agent finds it, with mode 0600, and gives
// it to the system's user [User] when there is one and we may. The file is replaced as
// a whole or not at all; its directory is made when it is missing. Without force, a
// file that is not [Ours] is an error that wraps ErrForeign. A file that is right
// already is left alone, but for its mode and owner.
func WriteKubeconfig(path string, text []byte, force bool) (Change, error) {
	change := Change{Kind: kindFile, Name: path, Result: Created}
	found, err := writable(path, force)
	if err != nil {
		return change, err
	}
	uid, gid := agentUser()
	if bytes.Equal(found, text) {
		change.Result = Unchanged
		set, err := setOwner(path, uid, gid)
		if set {
			change.Result = Changed
		}
		return change, err
	}
	if found != nil {
		change.Result = Changed
	}
	if err := replaceFile(path, text, uid, gid); err != nil {
		return change, fmt.Errorf("write the agent's kubeconfig: %w", err)
	}
	return change, nil
}

// RemoveKubeconfig removes what [WriteKubeconfig] wrote. A file that is not [Ours] is
// kept.
func RemoveKubeconfig(path string) (Change, error) {
	change := Change{Kind: kindFile, Name: path, Result: Missing}
	found, err := readFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return change, nil
	case err != nil:
		return change, err
	case !Ours(found):
		change.Result = Kept
		return change, nil
	}
	change.Result = Deleted
	if err := os.Remove(path); err != nil {
		return change, fmt.Errorf("remove the agent's kubeconfig: %w", err)
	}
	return change, nil
}

// readFile reads what may be a kubeconfig.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look at the agent's kubeconfig: %w", err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file: %w", path, ErrForeign)
	case info.Size() > maxKubeconfig:
		return nil, fmt.Errorf("%s has %d bytes: %w", path, info.Size(), ErrForeign)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the agent's kubeconfig: %w", err)
	}
	return text, nil
}

// agentUser returns whom the file is to belong to, -1 for no change.
func agentUser() (uid, gid int) {
	if os.Geteuid() != 0 {
		return -1, -1
	}
	found, err := user.Lookup(User)
	if err != nil {
		return -1, -1
	}
	uid, err1 := strconv.Atoi(found.Uid)
	gid, err2 := strconv.Atoi(found.Gid)
	if err1 != nil || err2 != nil {
		return -1, -1
	}
	return uid, gid
}

// setOwner gives a file mode 0600 and its owner, and reports whether that was another.
func setOwner(path string, uid, gid int) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("look at the agent's kubeconfig: %w", err)
	}
	set := false
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && uid >= 0 && (int(stat.Uid) != uid || int(stat.Gid) != gid) {
		if err := os.Chown(path, uid, gid); err != nil {
			return false, fmt.Errorf("give the agent its kubeconfig: %w", err)
		}
		set = true
	}
	if info.Mode().Perm() != 0o600 {
		if err := os.Chmod(path, 0o600); err != nil {
			return set, fmt.Errorf("keep others from the agent's kubeconfig: %w", err)
		}
		set = true
	}
	return set, nil
}

// replaceFile writes a file of mode 0600 beside path, and renames it over that.
func replaceFile(path string, text []byte, uid, gid int) (err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, kubeconfigDir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".kubeconfig-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err == nil && uid >= 0 {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
