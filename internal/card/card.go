//go:build linux

package card

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// pageSize is how much of a write is written, or not, when the power goes.
const pageSize = 4096

// Options say how a card behaves.
type Options struct {
	// Sync is how long each sync of a file or of the directory takes.
	Sync time.Duration
	// Errors is the part of all reads, writes and syncs that fail with an I/O error, from 0 to 1.
	Errors float64
	// CutAfter is the number of writes and changes of names after which the power goes; 0: it does not.
	CutAfter int
	// Seed determines errors, and what a power cut leaves of what was not synced.
	Seed uint64
}

// Card is a mounted file system.
type Card struct {
	opts   Options
	server *fuse.Server
	cut    chan struct{} // closed when the power goes

	mu      sync.Mutex
	random  *rand.Rand
	ino     uint64
	names   map[string]*file // as they are seen
	stored  map[string]*file // as they are on the card
	journal []renaming       // what happened to names since
	changes int
	stalled chan struct{} // closed when syncs go on; nil: they do
	waiting int           // syncs under way
}

// renaming has a name stand for a file, nil for none.
type renaming struct {
	name string
	file *file
}

// file is a file, with or without a name. It is guarded by Card.mu.
type file struct {
	fusefs.Inode
	card *Card
	ino  uint64
	mode uint32
	at   time.Time

	data   []byte // as it is seen
	synced []byte // as it is on the card
	dirty  map[int]bool
	least  int // the smallest length since the last sync
}

// Mount mounts an empty card. It needs the rights to mount in the namespace where it is called. [Card.Close] ends it.
func Mount(dir string, opts Options) (*Card, error) {
	c := &Card{
		opts: opts, cut: make(chan struct{}), random: rand.New(rand.NewPCG(opts.Seed, 0)), ino: 1,
		names: make(map[string]*file), stored: make(map[string]*file),
	}
	server, err := fusefs.Mount(dir, &root{card: c}, &fusefs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "card", Name: "card", MaxWrite: 128 << 10},
	})
	if err != nil {
		return nil, fmt.Errorf("mount a card at %s: %w", dir, err)
	}
	c.server = server
	return c, nil
}

// Unavailable reports whether the error of [Mount] is that FUSE cannot be used here.
func Unavailable(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENODEV, syscall.ENOENT, syscall.EPERM, syscall.EACCES}, func(no error) bool { return errors.Is(err, no) })
}

// Close unmounts the card. Its files have to be closed.
func (c *Card) Close() error { return c.server.Unmount() }

// Cut returns a channel that is closed when the power goes. From then on everything fails with an I/O error.
func (c *Card) Cut() <-chan struct{} { return c.cut }

// Load puts the files of a directory on the card, synced.
func (c *Card) Load(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f := c.newFile(uint32(info.Mode().Perm()))
		f.data, f.synced, f.least = text, slices.Clone(text), len(text)
		c.names[e.Name()], c.stored[e.Name()] = f, f
	}
	return nil
}

// Left writes to a directory what is on the card after the power has gone: what was synced, and by chance more. Names
// change in the order in which they were changed; pages are written in any order.
func (c *Card) Left(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := maps.Clone(c.stored)
	for _, r := range c.journal[:c.random.IntN(len(c.journal)+1)] {
		if names[r.name] = r.file; r.file == nil {
			delete(names, r.name)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(names)) { // sorted, so that a seed gives the same again
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), names[name].left(c.random), fs.FileMode(names[name].mode&0o777)))
	}
	return errors.Join(errs...)
}

// left is what a power cut leaves of a file.
func (f *file) left(random *rand.Rand) []byte {
	out := slices.Clone(f.synced)
	if f.least < len(out) && random.IntN(2) == 0 {
		out = out[:f.least]
	}
	for _, page := range slices.Sorted(maps.Keys(f.dirty)) {
		from, to := page*pageSize, min((page+1)*pageSize, len(f.data))
		if from >= to || random.IntN(2) == 0 {
			continue
		}
		if len(out) < to {
			out = append(out, make([]byte, to-len(out))...)
		}
		copy(out[from:to], f.data[from:to])
	}
	return out
}

// Stall lets no sync end until resume is called.
func (c *Card) Stall() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stalled := make(chan struct{})
	c.stalled = stalled
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.stalled = nil
		close(stalled)
	})
}

// Waiting returns how many syncs are under way.
func (c *Card) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting
}

// Fail changes [Options].Errors.
func (c *Card) Fail(part float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opts.Errors = part
}

// newFile returns a file without a name. c.mu is held.
func (c *Card) newFile(mode uint32) *file {
	c.ino++
	return &file{card: c, ino: c.ino, mode: mode, at: time.Now(), dirty: make(map[int]bool)}
}

// broken returns the error of an operation that fails. c.mu is held.
func (c *Card) broken() syscall.Errno {
	select {
	case <-c.cut:
		return syscall.EIO
	default:
	}
	if c.opts.Errors > 0 && c.random.Float64() < c.opts.Errors {
		return syscall.EIO
	}
	return 0
}

// change counts a change, the last of which the power takes with it. c.mu is held.
func (c *Card) change() syscall.Errno {
	if err := c.broken(); err != 0 {
		return err
	}
	if c.changes++; c.changes == c.opts.CutAfter {
		close(c.cut)
		return syscall.EIO
	}
	return 0
}

// name has a name stand for a file, nil for none. c.mu is held.
func (c *Card) name(name string, f *file) {
	if c.names[name] = f; f == nil {
		delete(c.names, name)
	}
	c.journal = append(c.journal, renaming{name, f})
}

// sync lets a sync take its time. A signal does not end it, as it ends none on a disk: programs, and SQLite among them, take an
// interrupted one for an error of the disk, and Go's runtime sends itself signals all the time.
func (c *Card) sync() {
	c.mu.Lock()
	stalled := c.stalled
	c.waiting++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
	}()
	var enough <-chan time.Time
	if stalled == nil {
		if c.opts.Sync == 0 {
			return
		}
		enough = time.After(c.opts.Sync)
	}
	select {
	case <-stalled:
	case <-enough:
	}
}

// root is the directory of the card. There is no other.
type root struct {
	fusefs.Inode
	card *Card
}

var (
	_ fusefs.NodeLookuper       = (*root)(nil)
	_ fusefs.NodeCreater        = (*root)(nil)
	_ fusefs.NodeUnlinker       = (*root)(nil)
	_ fusefs.NodeRenamer        = (*root)(nil)
	_ fusefs.NodeLinker         = (*root)(nil)
	_ fusefs.NodeOpendirHandler = (*root)(nil)
	_ fusefs.NodeGetattrer      = (*root)(nil)
	_ fusefs.NodeStatfser       = (*root)(nil)
)

// Getattr implements fs.NodeGetattrer.
func (r *root) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	out.Mode = syscall.S_IFDIR | 0o750
	return 0
}

// Statfs implements fs.NodeStatfser.
func (r *root) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	*out = fuse.StatfsOut{Bsize: pageSize, Blocks: 1 << 20, Bfree: 1 << 20, Bavail: 1 << 20, NameLen: 255}
	return 0
}

// Lookup implements fs.NodeLookuper.
func (r *root) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	f := r.card.names[name]
	if f == nil {
		return nil, syscall.ENOENT
	}
	f.attributes(&out.Attr)
	return r.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: f.ino}), 0
}

// Create implements fs.NodeCreater.
func (r *root) Create(ctx context.Context, name string, _, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	if err := r.card.change(); err != 0 {
		return nil, nil, 0, err
	}
	f := r.card.newFile(mode & 0o777)
	r.card.name(name, f)
	f.attributes(&out.Attr)
	return r.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: f.ino}), nil, 0, 0
}

// Unlink implements fs.NodeUnlinker.
func (r *root) Unlink(_ context.Context, name string) syscall.Errno {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	if err := r.card.change(); err != 0 {
		return err
	}
	r.card.name(name, nil)
	return 0
}

// Rename implements fs.NodeRenamer.
func (r *root) Rename(_ context.Context, name string, _ fusefs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	if flags != 0 {
		return syscall.ENOTSUP
	}
	if err := r.card.change(); err != 0 {
		return err
	}
	f := r.card.names[name]
	r.card.name(newName, f)
	r.card.name(name, nil)
	return 0
}

// Link implements fs.NodeLinker.
func (r *root) Link(ctx context.Context, target fusefs.InodeEmbedder, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	f, ok := target.(*file)
	if !ok {
		return nil, syscall.EPERM
	}
	if r.card.names[name] != nil {
		return nil, syscall.EEXIST
	}
	if err := r.card.change(); err != 0 {
		return nil, err
	}
	r.card.name(name, f)
	f.attributes(&out.Attr)
	return r.NewInode(ctx, f, fusefs.StableAttr{Mode: syscall.S_IFREG, Ino: f.ino}), 0
}

// OpendirHandle implements fs.NodeOpendirHandler.
func (r *root) OpendirHandle(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	r.card.mu.Lock()
	defer r.card.mu.Unlock()
	d := &directory{card: r.card}
	for i, name := range slices.Sorted(maps.Keys(r.card.names)) {
		d.entries = append(d.entries, fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: r.card.names[name].ino, Off: uint64(i + 1)})
	}
	return d, 0, 0
}

// directory is an open directory.
type directory struct {
	card    *Card
	entries []fuse.DirEntry
	next    int
}

var (
	_ fusefs.FileReaddirenter = (*directory)(nil)
	_ fusefs.FileSeekdirer    = (*directory)(nil)
	_ fusefs.FileFsyncdirer   = (*directory)(nil)
)

// Readdirent implements fs.FileReaddirenter.
func (d *directory) Readdirent(context.Context) (*fuse.DirEntry, syscall.Errno) {
	if d.next >= len(d.entries) {
		return nil, 0
	}
	d.next++
	return &d.entries[d.next-1], 0
}

// Seekdir implements fs.FileSeekdirer.
func (d *directory) Seekdir(_ context.Context, off uint64) syscall.Errno {
	d.next = int(min(off, uint64(len(d.entries))))
	return 0
}

// Fsyncdir implements fs.FileFsyncdirer. What happened to names until now is on the card then.
func (d *directory) Fsyncdir(context.Context, uint32) syscall.Errno {
	d.card.sync()
	d.card.mu.Lock()
	defer d.card.mu.Unlock()
	if err := d.card.broken(); err != 0 {
		return err
	}
	d.card.stored, d.card.journal = maps.Clone(d.card.names), nil
	return 0
}

var (
	_ fusefs.NodeOpener    = (*file)(nil)
	_ fusefs.NodeReader    = (*file)(nil)
	_ fusefs.NodeWriter    = (*file)(nil)
	_ fusefs.NodeFsyncer   = (*file)(nil)
	_ fusefs.NodeGetattrer = (*file)(nil)
	_ fusefs.NodeSetattrer = (*file)(nil)
)

// attributes fills in what stat shows. Card.mu is held.
func (f *file) attributes(out *fuse.Attr) {
	out.Ino, out.Mode, out.Size, out.Nlink = f.ino, syscall.S_IFREG|f.mode, uint64(len(f.data)), 1
	out.SetTimes(&f.at, &f.at, &f.at)
}

// Open implements fs.NodeOpener.
func (f *file) Open(context.Context, uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	return nil, 0, 0
}

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(_ context.Context, _ fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	f.attributes(&out.Attr)
	return 0
}

// Setattr implements fs.NodeSetattrer.
func (f *file) Setattr(_ context.Context, _ fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	if err := f.card.change(); err != 0 {
		return err
	}
	if mode, ok := in.GetMode(); ok {
		f.mode = mode & 0o777
	}
	if size, ok := in.GetSize(); ok {
		if size > 1<<30 {
			return syscall.EFBIG
		}
		f.resize(int(size))
	}
	f.attributes(&out.Attr)
	return 0
}

// resize changes the length. Card.mu is held.
func (f *file) resize(size int) {
	for page := min(size, len(f.data)) / pageSize; page*pageSize < max(size, len(f.data)); page++ {
		f.dirty[page] = true
	}
	if f.least = min(f.least, size); size <= len(f.data) {
		f.data = f.data[:size]
		return
	}
	f.data = append(f.data, make([]byte, size-len(f.data))...)
}

// Read implements fs.NodeReader.
func (f *file) Read(_ context.Context, _ fusefs.FileHandle, into []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	if err := f.card.broken(); err != 0 {
		return nil, err
	}
	if off >= int64(len(f.data)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(into[:copy(into, f.data[off:])]), 0
}

// Write implements fs.NodeWriter.
func (f *file) Write(_ context.Context, _ fusefs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	end := off + int64(len(data))
	if end > 1<<30 {
		return 0, syscall.EFBIG
	}
	if err := f.card.broken(); err != 0 {
		return 0, err
	}
	if int(end) > len(f.data) {
		f.resize(int(end))
	}
	copy(f.data[off:], data)
	for page := int(off) / pageSize; page*pageSize < int(end); page++ {
		f.dirty[page] = true
	}
	f.at = time.Now()
	// The one during which the power goes may be on the card, too.
	return uint32(len(data)), f.card.change()
}

// Fsync implements fs.NodeFsyncer. The content is on the card then; the name only once the directory is synced, too.
func (f *file) Fsync(context.Context, fusefs.FileHandle, uint32) syscall.Errno {
	f.card.sync()
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	if err := f.card.broken(); err != 0 {
		return err
	}
	f.synced, f.least = slices.Clone(f.data), len(f.data)
	clear(f.dirty)
	return 0
}
