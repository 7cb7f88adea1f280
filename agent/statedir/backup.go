package statedir

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// required are the files without which there is nothing to restore.
var required = []string{Database, trust.KeyFile}

// order is that of the files in an archive.
var order = []string{Database, trust.KeyFile, trust.ChainFile, FleetFile}

// ErrExists: the file for a backup is there already.
var ErrExists = errors.New("the file exists already")

// Backup writes the state in dir to w as one archive, beside a running agent or
// without one, and returns what is in it. The database is that of one moment. scratch
// is a directory for a copy of the database, which is gone when Backup returns.
//
// It reads the private key, so it is for root and for the user that the agent runs
// as. A damaged database, or a key that cannot be used, is an error: such a backup
// would help nobody.
func Backup(ctx context.Context, dir, version string, now time.Time, scratch string, w io.Writer) (Manifest, error) {
	m := Manifest{Format: Format, Version: version, CreatedAt: now.UTC().Truncate(time.Second)}
	if _, err := readKey(dir); err != nil { // before anything is copied
		return m, err
	}
	temp, err := os.MkdirTemp(scratch, ".liqo-agent-backup-")
	if err != nil {
		return m, fmt.Errorf("make room for a copy of the database: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // what cannot be removed here is the next one's to report
	copied := filepath.Join(temp, Database)
	if err := state.Snapshot(ctx, filepath.Join(dir, Database), copied); err != nil {
		return m, err
	}
	found, err := state.Examine(ctx, copied)
	if err != nil {
		return m, fmt.Errorf("the copy of the database: %w", err)
	}
	m.Schema, m.ClusterID = found.Schema, string(found.ClusterID)

	content := make(map[string][]byte)
	for _, name := range order {
		var file File
		if name == Database {
			file, err = sum(copied)
		} else {
			var data []byte
			data, err = readBounded(filepath.Join(dir, name), bounds[name])
			if errors.Is(err, fs.ErrNotExist) && name != trust.KeyFile {
				continue
			}
			content[name] = data
			digest := sha256.Sum256(data)
			file = File{Size: int64(len(data)), SHA256: hex.EncodeToString(digest[:])}
		}
		if err != nil {
			return m, fmt.Errorf("read %s: %w", name, err)
		}
		file.Name = name
		m.Files = append(m.Files, file)
	}
	// The agent may have replaced the key meanwhile. It writes the chain before the key, so a chain that was
	// read after a key leads to that.
	key, err := trust.ParseKey(content[trust.KeyFile], content[trust.ChainFile])
	if err != nil {
		return m, err
	}
	m.Fingerprint = key.Fingerprint().String()
	if err := m.check(); err != nil {
		return m, err
	}
	if err := writeArchive(w, m, content, copied); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}
	return m, nil
}

// readKey reads the key in dir, whoever owns it.
func readKey(dir string) (*trust.Key, error) {
	key, err := readBounded(filepath.Join(dir, trust.KeyFile), bounds[trust.KeyFile])
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cluster key in %s: has the agent ever run, and with this state.dir? %w", dir, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("the cluster key is secret, and only root and the agent's user can read it: %w", err)
	}
	if err != nil {
		return nil, err
	}
	chain, err := readBounded(filepath.Join(dir, trust.ChainFile), bounds[trust.ChainFile])
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return trust.ParseKey(key, chain)
}

func sum(path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	digest := sha256.New()
	n, err := io.Copy(digest, f)
	return File{Size: n, SHA256: hex.EncodeToString(digest.Sum(nil))}, err
}

func writeArchive(w io.Writer, m Manifest, content map[string][]byte, database string) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	out := tar.NewWriter(w)
	header := func(name string, size int64) error {
		return out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: m.CreatedAt, Format: tar.FormatUSTAR})
	}
	if err := header(manifestName, int64(len(text))); err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	for _, file := range m.Files {
		if err := header(file.Name, file.Size); err != nil {
			return err
		}
		if file.Name != Database {
			_, err = out.Write(content[file.Name])
		} else {
			err = appendFile(out, database)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

func appendFile(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(w, f)
	return err
}

// BackupFile is Backup into a file that only its owner can read. It appears when it
// is complete and on the disk; what a kill leaves behind is a directory beside it
// whose name begins with a dot, which the next backup to that file takes away. A
// file that is there is not replaced unless force is set: the error wraps ErrExists.
func BackupFile(ctx context.Context, dir, version string, now time.Time, path string, force bool) (m Manifest, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return m, err
	}
	if _, err := os.Lstat(path); err == nil && !force {
		return m, fmt.Errorf("%w: %s", ErrExists, path)
	}
	parent := filepath.Dir(path)
	scratch := filepath.Join(parent, "."+filepath.Base(path)+".part")
	if err := os.RemoveAll(scratch); err != nil {
		return m, err
	}
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return m, fmt.Errorf("write the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	part := filepath.Join(scratch, "backup.tar")
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return m, err
	}
	m, err = Backup(ctx, dir, version, now, scratch, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return m, err
	}
	if err := install(part, path, force); err != nil {
		return m, err
	}
	return m, syncPath(parent)
}

// install gives a file its name, and takes that from another one only with force.
func install(from, to string, force bool) error {
	if force {
		return os.Rename(from, to)
	}
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%w: %s", ErrExists, to)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		// A file system without that: somebody could be quicker by a moment.
		if _, err := os.Lstat(to); err == nil {
			return fmt.Errorf("%w: %s", ErrExists, to)
		}
		return os.Rename(from, to)
	case err != nil:
		return fmt.Errorf("write the backup to %s: %w", to, err)
	}
	return nil
}
