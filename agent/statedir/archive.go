package statedir

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"liqo.io/agent/peer/text"
)

// maxManifest bounds the manifest of an archive in bytes.
const maxManifest = 64 << 10

// extract reads an archive, which anybody may have written, into dir, which is
// empty. Every file there is one that its manifest names, as long and with the
// checksum that it says. It writes at most what bounds allow, and nothing outside
// dir. An error of the disk is returned as it is; others wrap ErrArchive.
func extract(r io.Reader, dir string) (Manifest, error) {
	in := tar.NewReader(r)
	manifest, err := next(in, manifestName, maxManifest)
	if err != nil {
		return Manifest{}, err
	}
	data, err := io.ReadAll(manifest)
	if err != nil {
		return Manifest{}, bad("it ends early: %v", err)
	}
	var m Manifest
	strict := json.NewDecoder(bytes.NewReader(data))
	if err := strict.Decode(&m); err != nil {
		return m, bad("its manifest cannot be read: %v", err)
	}
	if err := m.check(); err != nil {
		return m, err
	}
	for _, file := range m.Files {
		from, err := next(in, file.Name, file.Size)
		if err != nil {
			return m, err
		}
		if err := extractFile(from, file, filepath.Join(dir, file.Name)); err != nil {
			return m, err
		}
	}
	if header, err := in.Next(); !errors.Is(err, io.EOF) {
		if err != nil {
			return m, bad("its end cannot be read: %v", err)
		}
		return m, bad("%q follows the last file of its manifest", text.Excerpt(header.Name))
	}
	return m, nil
}

// next returns the content of the next file, which must have that name and at most
// so many bytes.
func next(in *tar.Reader, name string, limit int64) (io.Reader, error) {
	header, err := in.Next()
	switch {
	case err != nil:
		return nil, bad("%s is missing or cannot be read: %v", name, err)
	case header.Name != name || header.Typeflag != tar.TypeReg:
		return nil, bad("%q is where %s should be", text.Excerpt(header.Name), name)
	case header.Size < 0 || header.Size > limit:
		return nil, bad("%s has %d bytes, at most %d are allowed", name, header.Size, limit)
	}
	return io.LimitReader(in, limit), nil
}

func extractFile(from io.Reader, file File, path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	digest := sha256.New()
	source := &reading{from: from}
	n, err := io.Copy(io.MultiWriter(f, digest), source)
	if source.failed != nil {
		err = bad("%s ends early: %v", file.Name, source.failed)
	} else if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if n != file.Size || hex.EncodeToString(digest.Sum(nil)) != file.SHA256 {
		return bad("%s is not what its manifest says: the file was damaged or changed", file.Name)
	}
	return nil
}

// reading tells an error of the source from one of the disk.
type reading struct {
	from   io.Reader
	failed error
}

func (r *reading) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
	}
	return n, err
}
