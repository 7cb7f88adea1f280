package trust

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Rotate replaces the cluster key old, which must be the one kept in dir, with a
// new one and returns that. The old key signs the new one; the certificate is put
// in front of the earlier ones in ChainFile, of which the newest 8 are kept. The
// old private key is gone afterwards. Certificates that could not be read when
// old was loaded (Key.ChainProblem) are not in the new file.
//
// A crash or power cut at any point leaves either the old key or the new one,
// complete and with the certificates that lead to it. After an error it is the
// old one, unless the error says otherwise. Two rotations at once: one of them
// fails.
//
// Rotation is for keys that are not known to have leaked. A thief of the old key
// can sign a successor too: when a key was stolen, people have to trust the new
// one at every peer.
func Rotate(dir string, old *Key) (*Key, error) {
	return rotate(dir, old, func(string, string) {})
}

// rotate is Rotate. It calls done after every operation on a file, with the
// operation and the file's path.
func rotate(dir string, old *Key, done func(op, path string)) (*Key, error) {
	unlock, err := lockDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: rotate the cluster key: %w", ErrKeyAccess, err)
	}
	defer unlock()
	// The key may be mounted from elsewhere by a symbolic link. It is replaced
	// where it is: replacing the link would leave the old key behind.
	path, err := filepath.EvalSymlinks(filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, fmt.Errorf("%w: rotate the cluster key: %w", ErrKeyAccess, err)
	}
	present, err := loadKey(path)
	if err != nil {
		return nil, err
	}
	if present.fingerprint != old.fingerprint {
		return nil, fmt.Errorf("%w: %s holds the key %s, not %s, which is in use: it was rotated or replaced meanwhile; restart the agent first",
			ErrKeyAccess, path, present.fingerprint, old.fingerprint)
	}
	next, err := generateKey()
	if err != nil {
		return nil, err
	}
	handover, err := newSuccession(old, next)
	if err != nil {
		return nil, err
	}
	next.successions = append([]*x509.Certificate{handover}, old.successions...)
	next.successions = next.successions[:min(len(next.successions), maxSuccessions)]
	key, err := encodeKey(next)
	if err != nil {
		return nil, err
	}
	// The chain first: a key without the certificates that lead to it would cut
	// the cluster off from its peers, certificates without their key do nothing.
	err = removeLeftovers(dir, filepath.Dir(path))
	if err == nil {
		err = replaceFile(ChainFile, filepath.Join(dir, ChainFile), encodeCertificates(next.successions...), done)
	}
	if err == nil {
		err = replaceFile(KeyFile, path, key, done)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: rotate the cluster key: %w; user id %d must be able to write there", ErrKeyAccess, err, os.Geteuid())
	}
	return next, nil
}

// lockDir keeps other processes from rotating the key in dir.
func lockDir(dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = d.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("another process is rotating the key in %s at the moment; look at what it did first", dir)
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return func() { _ = d.Close() }, nil // closing unlocks
}

// removeLeftovers removes what a crash while the key was created or rotated left
// behind: files that may hold the key that is about to go.
func removeLeftovers(dirs ...string) error {
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "."+KeyFile+".") && !strings.HasPrefix(e.Name(), "."+ChainFile+".") {
				continue
			}
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// replaceFile puts data in the place of the file at path: after a crash at any
// point the file is the old one or the new one, whole, and when replaceFile
// returns nil it is the new one for good. Until then name is in the name of a
// temporary file, for removeLeftovers.
func replaceFile(name, path string, data []byte, done func(op, path string)) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+name+".*") // mode 0600
	if err != nil {
		return err
	}
	done("create", temp.Name())
	renamed := false
	defer func() {
		if !renamed {
			_ = os.Remove(temp.Name()) // the error that already is, is the one to tell
		}
	}()
	if err := writeAndClose(temp, data); err != nil {
		return err
	}
	done("sync", temp.Name())
	if err := os.Rename(temp.Name(), path); err != nil {
		return err
	}
	renamed = true
	done("rename", path)
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%s was replaced, but may be the old one again after a power cut: %w; restart the agent, so that it uses what is there", path, err)
	}
	done("syncdir", dir)
	return nil
}
