package statedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// The names of what is in the state directory, besides trust.KeyFile and
// trust.ChainFile.
const (
	// Database is the database; files whose names begin so belong to it.
	Database = "agent.db"
	// FleetFile is this cluster's certificate from the authority of its fleet.
	FleetFile = "fleet.crt"

	claimFile  = "identity.claim"
	resetFile  = "reset.pending"
	restoreDir = ".restore"
	asideDir   = "before-restore-"
	lockFile   = Database + ".lock"
)

// bounds are the most bytes that a file of the state directory may have in a backup.
var bounds = map[string]int64{
	Database:        1 << 30,
	trust.KeyFile:   16 << 10,
	trust.ChainFile: 64 << 10,
	FleetFile:       256 << 10,
}

// identity are the files that say who this cluster is, with its ID.
var identity = []string{trust.KeyFile, trust.ChainFile, FleetFile}

// ofDatabase reports whether a file is the database or belongs to it. The lock is
// nobody's: it has to stay, or two agents could lock two files of one name.
func ofDatabase(name string) bool { return strings.HasPrefix(name, Database) && name != lockFile }

// replaced reports whether a restore replaces a file, or sets it aside. Databases
// that were damaged are evidence, and stay where they are.
func replaced(name string) bool {
	return ofDatabase(name) && !strings.HasPrefix(name, Database+".damaged-") || slices.Contains(identity, name) || name == claimFile
}

// unfinished reports whether a file is half of something that an agent was killed in.
func unfinished(name string) bool {
	return strings.HasPrefix(name, "."+trust.KeyFile+".") || strings.HasPrefix(name, "."+trust.ChainFile+".") || strings.HasPrefix(name, state.SalvagePrefix)
}

// made are the files of the agent that it makes anew when they are missing.
var made = []string{"admission.key", "kubelet"}

// names lists the directory; one that does not exist has none.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file but %s", path, info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", path, limit)
	}
	return data, err
}

// readJSON reads a small file of ours; found is false when there is none.
func readJSON(path string, into any) (found bool, err error) {
	data, err := readBounded(path, 64<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return true, fmt.Errorf("read %s: %w", path, err)
	}
	return true, nil
}

// writeJSON replaces a small file of ours, which only its owner can read. It is on
// the disk when it returns.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".new"
	if err := writeFile(temp, append(data, '\n'), 0o600); err != nil {
		return errors.Join(err, removeIfThere(temp))
	}
	if err := own(temp, filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}

func writeFile(path string, data []byte, mode fs.FileMode) error {
	// The directory may be that of a user with fewer rights than ours: no link of theirs is followed.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncPath has a file, or the names in a directory, on the disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// own gives a file to whom dir belongs, so that what root restores is the agent's.
// Anybody else can only make files of their own.
func own(path, dir string) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	return os.Lchown(path, int(st.Uid), int(st.Gid))
}
