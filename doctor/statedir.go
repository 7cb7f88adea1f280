package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/doctor/look"
	"liqo.io/agent/state"
	"liqo.io/agent/trust"
)

// secretFiles are the files in the state directory that nobody else may read.
var secretFiles = []string{trust.KeyFile, databaseName, databaseName + "-wal"}

func checkState(ctx context.Context, b *Box) []Finding {
	files, err := b.ask.modes(b.stateDir, secretFiles...)
	_, agentErr := b.agentSays(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if agentErr == nil {
			return []Finding{{Code: "state-missing", Status: Error, What: fmt.Sprintf("the state directory %s is gone while the agent runs", b.stateDir),
				Why: "who is trusted, what was decided and the key of this cluster are lost with the next start",
				Do:  []string{"restore it from a backup: liqo-agent state restore FILE", "see what removed it, or what was mounted there"}}}
		}
		return []Finding{skipped("there is no state directory %s: the agent has not run yet, or not with this state.dir", b.stateDir)}
	case errors.Is(err, fs.ErrPermission) && !b.opts.Root:
		return []Finding{skipped("this user may not look into %s: use sudo", b.stateDir)}
	case err != nil:
		return []Finding{skipped("%v", err)}
	}
	out := judgeModes(files)
	path := filepath.Join(b.stateDir, databaseName)
	_, err = b.ask.database(ctx, path)
	if f, bad := judgeDatabase(err, b.opts.Root); bad {
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, fine("%s can be read, its schema is that of this version, and nobody else may read the key", path))
	}
	return out
}

// judgeModes says who else can read or change what is private. The directory comes
// first.
func judgeModes(files []look.File) []Finding {
	const why = "whoever has the key of this cluster can pretend to be it towards every peer"
	var out []Finding
	for i, f := range files {
		perm := f.Mode.Perm()
		switch {
		case i == 0 && perm&0o022 != 0:
			out = append(out, Finding{Code: "state-exposed", Status: Error, What: fmt.Sprintf("others may change what is in %s (mode %04o)", f.Path, perm), Why: why,
				Do: []string{"sudo chmod 0750 " + f.Path}})
		case i > 0 && filepath.Base(f.Path) == trust.KeyFile && perm&0o077 != 0:
			out = append(out, Finding{Code: "key-exposed", Status: Error, What: fmt.Sprintf("others may read the cluster key %s (mode %04o)", f.Path, perm), Why: why,
				Do: []string{"sudo chmod 0600 " + f.Path, "if somebody else may have read it, make a new one: liqo-agent key rotate"}})
		case i > 0 && perm&0o002 != 0:
			out = append(out, Finding{Code: "state-exposed", Status: Error, What: fmt.Sprintf("everybody may change %s (mode %04o)", f.Path, perm), Why: "who is trusted is kept there",
				Do: []string{"sudo chmod 0640 " + f.Path}})
		case i > 0 && files[0].UID != f.UID && f.UID >= 0:
			out = append(out, Finding{Code: "state-owner", Status: Warning, What: fmt.Sprintf("%s belongs to user %d, and the directory it is in to user %d", f.Path, f.UID, files[0].UID),
				Why: "an agent that does not run as root may not be able to read or write it: that happens when it was once started by hand with sudo",
				Do:  []string{fmt.Sprintf("sudo chown -R %d:%d %s", files[0].UID, files[0].GID, files[0].Path)}})
		}
	}
	return out
}

// judgeDatabase says what came of opening the database.
func judgeDatabase(err error, root bool) (Finding, bool) {
	const why = "who is trusted and what was decided about peers is kept there"
	switch {
	case err == nil:
		return Finding{}, false
	case errors.Is(err, state.ErrNoDatabase):
		return skipped("%v", err), true
	case errors.Is(err, state.ErrReadOnly) && !root:
		return skipped("this user may not read the database: use sudo"), true
	case errors.Is(err, state.ErrNewerSchema):
		return Finding{Code: "state-newer", Status: Error, What: err.Error(), Why: "this version does not start with it: " + why,
			Do: []string{"install the newer version again", "or go back to a backup that this version made: liqo-agent state restore FILE"}}, true
	case errors.Is(err, state.ErrOlderSchema):
		return info("state-older", "%v", err), true
	case errors.Is(err, state.ErrDamaged):
		return Finding{Code: "state-damaged", Status: Error, What: err.Error(), Why: why + "; a card or disk that damages one file may be about to fail",
			Do: []string{"start the agent, which keeps what can still be read, or restore a backup: liqo-agent state restore FILE", "see what the kernel says about the disk: sudo dmesg | grep -i -e mmc -e i/o"}}, true
	}
	return Finding{Code: "state-unreadable", Status: Warning, What: err.Error(), Why: why, Do: []string{"liqo-agent state check"}}, true
}

const (
	syncs = 7
	// A transaction is one or two syncs. A good card takes 5 to 20 ms for each.
	slowSync     = 250 * time.Millisecond
	verySlowSync = 2 * time.Second

	// In bytes these are the limits at which the agent itself reports a full disk.
	fullBytes, lowBytes = 8 << 20, 64 << 20
	fullInodes          = 64
	lowShare            = 50 // a fiftieth of what there is
)

func checkDisk(ctx context.Context, b *Box) []Finding {
	disk, err := b.ask.disk(b.stateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return []Finding{skipped("there is no state directory %s", b.stateDir)}
	}
	if err != nil {
		return []Finding{skipped("%v", err)}
	}
	out := judgeSpace(disk, b.stateDir)
	if len(out) > 0 && out[0].Status == Error {
		return out // writing would only say the same
	}
	took, err := b.ask.syncTimes(ctx, b.stateDir, syncs)
	f := judgeSync(took, err, disk, b.stateDir, b.opts.Root)
	if len(out) == 0 || f.Status != OK {
		out = append(out, f)
	}
	return out
}

// judgeSpace says what is left on the disk of a directory.
func judgeSpace(d look.Disk, dir string) []Finding {
	const why = "nothing that is learnt or decided can be stored: it is lost with the next start, and K3s on the same disk stops as well"
	free := []string{"see what takes the space: sudo du -xh / | sort -h | tail -30", "often logs and images: sudo journalctl --vacuum-size=100M; sudo k3s crictl rmi --prune"}
	counted := d.Inodes > 0
	switch {
	case d.ReadOnly:
		return []Finding{{Code: "disk-read-only", Status: Error, What: fmt.Sprintf("%s is on a file system that is mounted read-only", dir), Why: why,
			Do: []string{"a file system with errors is mounted like that: sudo dmesg | grep -i -e ext4 -e mmc -e i/o", "or put the state elsewhere: [state] dir"}}}
	case d.FreeBytes < fullBytes:
		return []Finding{{Code: "disk-full", Status: Error, What: fmt.Sprintf("the disk of %s is full: %s of %s are free", dir, size(d.FreeBytes), size(d.Bytes)), Why: why, Do: free}}
	case counted && d.FreeInodes < fullInodes:
		return []Finding{{Code: "disk-full", Status: Error, What: fmt.Sprintf("the disk of %s can hold no more files: %d of %d inodes are free", dir, d.FreeInodes, d.Inodes), Why: why,
			Do: []string{"see where there are many small files: sudo du --inodes -x / | sort -n | tail -30"}}}
	case d.FreeBytes < lowBytes:
		return []Finding{{Code: "disk-low", Status: Warning, What: fmt.Sprintf("the disk of %s is almost full: %s of %s are free", dir, size(d.FreeBytes), size(d.Bytes)), Why: "when it is full, " + why, Do: free}}
	case counted && d.FreeInodes < d.Inodes/lowShare && d.FreeInodes < 10_000:
		return []Finding{{Code: "disk-low", Status: Warning, What: fmt.Sprintf("the disk of %s can hold few more files: %d of %d inodes are free", dir, d.FreeInodes, d.Inodes), Why: "when it is full, " + why, Do: free}}
	}
	return nil
}

// judgeSync says what it means how long the disk took.
func judgeSync(took []time.Duration, err error, d look.Disk, dir string, root bool) Finding {
	switch {
	case errors.Is(err, fs.ErrPermission) && !root:
		return skipped("%s free; how fast it writes takes root to find out", size(d.FreeBytes))
	case err != nil:
		return Finding{Code: "disk-write", Status: Error, What: "nothing can be written: " + err.Error(), Why: "nothing that is learnt or decided can be stored",
			Do: []string{"see what the kernel says about the disk: sudo dmesg | tail -50"}}
	case len(took) == 0:
		return skipped("%s free; it was not finished in time to say how fast it writes", size(d.FreeBytes))
	}
	median, worst := took[len(took)/2], took[len(took)-1]
	text := fmt.Sprintf("a small file in %s took %s to be on the disk, %s at worst", dir, round(median), round(worst))
	if median < slowSync {
		return fine("%s free; %s", size(d.FreeBytes), text)
	}
	f := Finding{Code: "disk-slow", Status: Warning, What: text,
		Why: "each decision waits for the disk, and so does everything that K3s does with its database: leases end late and API calls time out",
		Do:  []string{"see what else writes: sudo iotop -o, or sudo pidstat -d 5"}}
	if median > verySlowSync {
		f.Status = Error
	}
	if d.Card {
		f.Do = append(f.Do, "it is an SD card or eMMC ("+d.Device+"): one of class A2, or a USB SSD for /var/lib, is many times faster; a card that became slow is often worn out")
	}
	return f
}

// round leaves of a time what matters.
func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func size(bytes uint64) string {
	switch {
	case bytes >= 10<<30:
		return fmt.Sprintf("%d GiB", bytes>>30)
	case bytes >= 10<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

func checkResources(ctx context.Context, b *Box) []Finding {
	var facts resources
	var err error
	if facts.total, facts.available, err = b.ask.memory(); err != nil {
		return []Finding{skipped("%v", err)}
	}
	if facts.rmem, err = b.ask.rmem(); err != nil {
		facts.rmem = 0 // not known
	}
	if says, err := b.agentSays(ctx); err == nil {
		facts.packets = says.status.Packets
		if pid, _, err := b.ask.process(ctx, b.socket); err == nil {
			if facts.limits, err = b.ask.limits(pid); err != nil {
				facts.limits = look.Limits{} // those of another user may not be read
			}
		}
	}
	return judgeResources(facts)
}

// resources is what there is for the agent, and what it uses. 0 is "not known".
type resources struct {
	total, available, rmem uint64
	limits                 look.Limits
	packets                control.Packets
}

// judgeResources says whether that is enough.
func judgeResources(r resources) []Finding {
	var out []Finding
	l := r.limits
	if l.OOMKills > 0 {
		out = append(out, Finding{Code: "memory-killed", Status: Warning, What: fmt.Sprintf("the kernel has killed the agent %d times because it needed more than %s", l.OOMKills, size(l.MemoryMax)),
			Why: "each time, peers lose their connections and this box is not seen for a moment", Do: []string{"raise MemoryMax: sudo systemctl edit liqo-agent", "or lower discovery.max_neighbours"}})
	} else if l.MemoryMax > 0 && l.Memory > l.MemoryMax/10*9 {
		out = append(out, Finding{Code: "memory-limit", Status: Warning, What: fmt.Sprintf("the agent uses %s of the %s that it may", size(l.Memory), size(l.MemoryMax)),
			Why: "the kernel kills it when it needs more", Do: []string{"raise MemoryMax: sudo systemctl edit liqo-agent", "or lower discovery.max_neighbours"}})
	}
	if r.total > 0 && r.available < 32<<20 {
		out = append(out, Finding{Code: "memory-low", Status: Warning, What: fmt.Sprintf("only %s of the %s of memory are available", size(r.available), size(r.total)),
			Why: "programs are killed, or everything becomes slow, when there is none left", Do: []string{"see who uses it: ps aux --sort=-rss | head"}})
	}
	if l.MaxFiles > 0 && l.Files > l.MaxFiles/10*8 {
		out = append(out, Finding{Code: "files-limit", Status: Warning, What: fmt.Sprintf("the agent has %d of %d files and connections open", l.Files, l.MaxFiles),
			Why: "beyond that it can accept no connection of a peer", Do: []string{"raise LimitNOFILE: sudo systemctl edit liqo-agent", "or lower endpoint.max_connections"}})
	}
	if p := r.packets; p.SocketDrops > 0 && p.SocketDrops > p.Received/100 {
		f := Finding{Code: "socket-drops", Status: Warning, What: fmt.Sprintf("the kernel dropped %d mDNS packets because the agent did not take them in time, of %d", p.SocketDrops, p.Received),
			Why: "clusters may be found late, or seem to have gone", Do: []string{"let the agent have a larger buffer: it needs CAP_NET_ADMIN, as the unit gives it, or"}}
		f.Do = append(f.Do, "sudo sysctl -w net.core.rmem_max=4194304")
		out = append(out, f)
	}
	if len(out) == 0 {
		text := fmt.Sprintf("%s of memory available", size(r.available))
		if l.Memory > 0 {
			text = fmt.Sprintf("the agent uses %s of memory and %d files; %s", size(l.Memory), l.Files, text)
		}
		out = append(out, fine("%s", text))
	}
	return out
}

// maxSmall bounds what is read of a file that a person wrote.
const maxSmall = 1 << 20

// readSmall reads a file of bounded size.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing is lost
	return io.ReadAll(io.LimitReader(f, maxSmall))
}

// lines splits text without its last newline.
func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
