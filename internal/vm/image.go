//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Where things are in a machine.
const (
	initPath    = "/init"
	argsPath    = "/args"
	modulesPath = "/modules"
)

// collect returns the files of modules and of those on which they depend, each after these. Modules that are part of the
// kernel have none.
func collect(tree string, names []string) ([]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			files[moduleName(strings.TrimSuffix(d.Name(), ".ko"))] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there is no module in %s", tree)
	}
	var out []string
	var add func(name string) error
	add = func(name string) error {
		path, ok := files[moduleName(name)]
		if !ok || slices.Contains(out, path) {
			return nil
		}
		needs, err := depends(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		out = append(out, path)
		return nil
	}
	for _, name := range names {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// depends returns the names of the modules that one needs.
func depends(path string) ([]string, error) {
	module, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer module.Close()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it says nothing about itself")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(info, []byte{0}) {
		if names, ok := bytes.CutPrefix(line, []byte("depends=")); ok && len(names) > 0 {
			return strings.Split(string(names), ","), nil
		}
	}
	return nil, nil
}

// archive writes the format that the kernel unpacks into its first file system: cpio, "newc".
type archive struct {
	w     *bufio.Writer
	inode int
	err   error
}

// write makes the file system of a machine.
func write(image, program string, modules, args []string) (err error) {
	file, err := os.Create(image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	a := &archive{w: bufio.NewWriterSize(file, 1<<20)}
	for _, dir := range []string{
		"bin", "dev", "dev/shm", "etc", "home", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "usr/bin", "usr/sbin", "usr/local", "usr/local/bin",
		"var", "var/lib", modulesPath[1:],
	} {
		a.entry(dir, 0o040755, nil)
	}
	a.copy(initPath, program)
	a.copy(busybox, busybox)
	a.entry(argsPath, 0o100644, []byte(strings.Join(args, "\n")))
	for i, path := range modules {
		a.copy(fmt.Sprintf("%s/%03d-%s", modulesPath, i, filepath.Base(path)), path)
	}
	a.entry("TRAILER!!!", 0, nil)
	return errors.Join(a.err, a.w.Flush())
}

func (a *archive) copy(name, from string) {
	b, err := os.ReadFile(from)
	if err != nil {
		a.err = errors.Join(a.err, err)
		return
	}
	a.entry(name, 0o100755, b)
}

func (a *archive) entry(name string, mode int, content []byte) {
	name = strings.TrimPrefix(name, "/")
	a.inode++
	const links, nobody = 1, 0
	_, err := fmt.Fprintf(a.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.inode, mode, nobody, nobody, links, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	const header = 110
	a.err = errors.Join(a.err, err, a.pad(header+len(name)+1))
	_, err = a.w.Write(content)
	a.err = errors.Join(a.err, err, a.pad(len(content)))
}

// pad fills up to a multiple of 4 after so many bytes.
func (a *archive) pad(n int) error {
	_, err := io.WriteString(a.w, "\x00\x00\x00"[:(4-n%4)%4])
	return err
}
