package look

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Disk is the file system that a directory is on.
type Disk struct {
	Bytes, FreeBytes   uint64 // for users without privileges
	Inodes, FreeInodes uint64 // 0 and 0: the file system does not count them
	ReadOnly           bool   // it is mounted so
	Device             string // such as mmcblk0p2; "" when there is none
	// Card: the device is an SD card or eMMC.
	Card bool
}

// DiskOf looks at the file system that a directory is on.
func DiskOf(dir string) (Disk, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Disk{}, fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	size := uint64(st.Bsize)
	out := Disk{Bytes: st.Blocks * size, FreeBytes: st.Bavail * size, Inodes: st.Files, FreeInodes: st.Ffree, ReadOnly: st.Flags&unix.ST_RDONLY != 0}
	info, err := os.Stat(dir)
	if err != nil {
		return out, fmt.Errorf("look at %s: %w", dir, err)
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		at := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(s.Dev)), unix.Minor(uint64(s.Dev)))
		if to, err := os.Readlink(at); err == nil {
			out.Device = filepath.Base(to)
			out.Card = strings.HasPrefix(out.Device, "mmcblk")
		}
	}
	return out, nil
}

// syncSize is what is written for one sync: a page of SQLite's.
const syncSize = 4096

// SyncTimes writes a small file in a directory and syncs it so many times, as the
// database does, and returns how long each took, the shortest first. The file is
// removed.
func SyncTimes(ctx context.Context, dir string, times int) (took []time.Duration, err error) {
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return nil, fmt.Errorf("write a file in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	page := make([]byte, syncSize)
	for range times {
		if ctx.Err() != nil {
			break
		}
		began := time.Now()
		if _, err := f.WriteAt(page, 0); err != nil {
			return nil, fmt.Errorf("write a file in %s: %w", dir, err)
		}
		if err := f.Sync(); err != nil {
			return nil, fmt.Errorf("sync a file in %s: %w", dir, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

// File is who may do what with a file.
type File struct {
	Path     string
	Mode     fs.FileMode
	UID, GID int
}

// Modes returns what there is of the files in a directory, of the directory itself
// first; no error when one of the files is not there.
func Modes(dir string, names ...string) ([]File, error) {
	var out []File
	for i, path := range append([]string{dir}, names...) {
		if i > 0 {
			path = filepath.Join(dir, path)
		}
		info, err := os.Lstat(path)
		if i > 0 && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return out, err
		}
		f := File{Path: path, Mode: info.Mode(), UID: -1, GID: -1}
		if s, ok := info.Sys().(*syscall.Stat_t); ok {
			f.UID, f.GID = int(s.Uid), int(s.Gid)
		}
		out = append(out, f)
	}
	return out, nil
}
