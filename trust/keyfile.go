package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"liqo.io/agent/peer/text"
)

// KeyFile is the name of the cluster key's file in the state directory: one
// PEM block "PRIVATE KEY" (PKCS#8), mode 0600.
const KeyFile = "cluster.key"

const (
	keyBlock = "PRIVATE KEY"
	// maxKeyFile is far more than a P-256 key needs (241 bytes) and little
	// enough to read whatever somebody put there by mistake.
	maxKeyFile = 16 << 10
)

// Errors of LoadOrCreateKey, for errors.Is. The text that wraps them names the
// file and says what to do.
var (
	// ErrKeyDamaged: the file is there but holds no usable cluster key.
	ErrKeyDamaged = errors.New("cluster key is not usable")
	// ErrKeyExposed: others than the agent's user may read or replace the key.
	ErrKeyExposed = errors.New("cluster key is not private")
	// ErrKeyAccess: the key could not be read or written.
	ErrKeyAccess = errors.New("cluster key is not accessible")
)

// LoadOrCreateKey returns the cluster key kept in dir, creating it (and dir)
// on the first call. A new key is complete on disk, synced, before it is
// returned, and processes that race to create it all get the same one. A file
// that is there but cannot be used is an error (ErrKeyDamaged, ErrKeyExposed,
// ErrKeyAccess) and is left untouched.
//
// The certificates by which earlier keys handed over to this one are read from
// ChainFile. What is wrong with that file is no error: see Key.ChainProblem.
func LoadOrCreateKey(dir string) (*Key, error) {
	path := filepath.Join(dir, KeyFile)
	key, err := loadKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := createKeyFile(dir, path); err != nil {
			return nil, err
		}
		// Reading back what is on disk also covers having lost the race.
		key, err = loadKey(path)
	}
	if err != nil {
		return nil, err
	}
	key.loadChain(dir)
	return key, nil
}

// loadKey reads and checks the key at path. Its error wraps fs.ErrNotExist
// when, and only when, there is no file.
func loadKey(path string) (*Key, error) {
	// O_NONBLOCK keeps a FIFO from blocking the start. A symbolic link is
	// followed on purpose: keys are mounted that way.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if info, lerr := os.Lstat(path); lerr == nil && info.Mode()&fs.ModeSymlink != 0 {
			return nil, fmt.Errorf("%w: %s is a symbolic link to nothing; restore what it points to, or remove the link "+
				"to start over with a new key, which every peer has to trust again", ErrKeyAccess, path)
		}
		return nil, fmt.Errorf("read cluster key: %w", err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w; it must be readable by user id %d, which runs the agent", ErrKeyAccess, err, os.Geteuid())
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyAccess, err)
	}
	if err := checkPrivate(path, info, os.Geteuid()); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("%w: read %s: %w", ErrKeyAccess, path, err)
	}
	key, err := parseKey(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w. Peers know this cluster by that key, so it is never replaced by itself: restore the file "+
			"from a backup, or remove it to start over with a new key, which every peer has to trust again", ErrKeyDamaged, path, err)
	}
	return key, nil
}

// checkPrivate refuses a file that others than uid and root can read, or
// could have written.
func checkPrivate(path string, info fs.FileInfo, uid int) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file but %s; move it away to let the agent create a key",
			ErrKeyDamaged, path, info.Mode())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%w: %s has mode %04o, so other users may read or change it; run: chmod 600 %s",
			ErrKeyExposed, path, mode, path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid && st.Uid != 0 {
		return fmt.Errorf("%w: %s belongs to user id %d, but the agent runs as user id %d; run: chown %d %s",
			ErrKeyExposed, path, st.Uid, uid, uid, path)
	}
	return nil
}

// parseKey reads the content of a key file.
func parseKey(data []byte) (*Key, error) {
	if len(data) == 0 {
		return nil, errors.New("the file is empty")
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("the file is larger than %d bytes", maxKeyFile)
	}
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("the file holds no complete PEM block")
	}
	if block.Type != keyBlock {
		return nil, fmt.Errorf("the file holds a PEM block %q, want %q (unencrypted PKCS#8)", text.Excerpt(block.Type), keyBlock)
	}
	if len(bytes.TrimSpace(rest)) != 0 {
		return nil, errors.New("the file goes on after the key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the PEM block is not a PKCS#8 key: %w", err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T, want ECDSA on P-256", parsed)
	}
	if private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("the key is ECDSA on %s, want P-256", private.Curve.Params().Name)
	}
	return newKey(private)
}

// encodeKey is the inverse of parseKey.
func encodeKey(k *Key) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, fmt.Errorf("encode the cluster key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// createKeyFile makes path appear with a whole new key in it. That another
// process was faster is success. The key is written under another name and
// then linked: unlike a rename, a link fails when the name is taken, so the
// key that somebody already read is never replaced.
func createKeyFile(dir, path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w: create %s: %w; user id %d must be able to write there (state.dir sets the directory)",
				ErrKeyAccess, path, err, os.Geteuid())
		}
	}()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	key, err := generateKey()
	if err != nil {
		return err
	}
	data, err := encodeKey(key)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "."+KeyFile+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		// The error that already is, if any, is the one to tell.
		if rerr := os.Remove(temp.Name()); err == nil {
			err = rerr
		}
		if err == nil {
			err = syncDir(dir)
		}
	}()
	if err := writeAndClose(temp, data); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func writeAndClose(f *os.File, data []byte) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes the directory's entries durable: without it a power cut can
// take away a file whose content was synced.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
