package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
	says, agentErr := b.agentSays(ctx)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if agentErr == nil {
			return []Finding{{Code: "state-missing", Status: Error, What: fmt.Sprintf("the state directory %s disappeared while the agent was running", b.stateDir),
				Why: "trust, decisions and the key of this cluster are lost at the next start",
				Do:  []string{"restore it from a backup: liqo-agent state restore FILE", "find out what removed it, or was mounted there"}}}
		}
		return []Finding{skipped("there is no state directory %s: the agent has not run yet, or not with this state.dir", b.stateDir)}
	case errors.Is(err, fs.ErrPermission) && !b.opts.Root:
		return []Finding{skipped("this user may not read %s: use sudo", b.stateDir)}
	case err != nil:
		return []Finding{skipped("%v", err)}
	}
	out := judgeModes(files)
	path := filepath.Join(b.stateDir, databaseName)
	out = append(out, judgeMissing(files, agentErr == nil && says.status.State.Path == path && !says.status.State.Volatile)...)
	_, err = b.ask.database(ctx, path)
	if f, bad := judgeDatabase(err, b.opts.Root); bad {
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, fine("%s is readable, with the schema of this version, and nobody else may read the key", path))
	}
	return out
}

// judgeMissing says which files are missing, of which the directory comes first. agentRuns: an agent works with them.
func judgeMissing(files []look.File, agentRuns bool) []Finding {
	there := func(name string) bool {
		return slices.ContainsFunc(files[1:], func(f look.File) bool { return filepath.Base(f.Path) == name })
	}
	dir := files[0].Path
	missing := func(what, why string, do ...string) Finding {
		return Finding{Code: "state-missing", Status: Error, What: what, Why: why, Do: append(do, "restore it from a backup: liqo-agent state restore FILE")}
	}
	var out []Finding
	if agentRuns && !there(databaseName) {
		out = append(out, missing(fmt.Sprintf("the database disappeared from %s while the agent was running", dir), "trust and decisions are lost at the next start"))
	}
	if !there(trust.KeyFile) && (agentRuns || there(databaseName)) {
		out = append(out, missing(fmt.Sprintf("the key of this cluster is missing in %s", dir), "at the next start, this cluster gets another one, and its peers refuse that"))
	}
	return out
}

// judgeModes says who else can read or change what is private. The directory comes
// first.
func judgeModes(files []look.File) []Finding {
	const why = "whoever has the key of this cluster can impersonate it"
	var out []Finding
	for i, f := range files {
		perm := f.Mode.Perm()
		switch {
		case i == 0 && perm&0o022 != 0:
			out = append(out, Finding{Code: "state-exposed", Status: Error, What: fmt.Sprintf("others may change files in %s (mode %04o)", f.Path, perm), Why: why,
				Do: []string{"sudo chmod 0750 " + f.Path}})
		case i > 0 && filepath.Base(f.Path) == trust.KeyFile && perm&0o077 != 0:
			out = append(out, Finding{Code: "key-exposed", Status: Error, What: fmt.Sprintf("others may read the cluster key %s (mode %04o)", f.Path, perm), Why: why,
				Do: []string{"sudo chmod 0600 " + f.Path, "if somebody may have read it, replace it: liqo-agent key rotate"}})
		case i > 0 && perm&0o002 != 0:
			out = append(out, Finding{Code: "state-exposed", Status: Error, What: fmt.Sprintf("everybody may change %s (mode %04o)", f.Path, perm), Why: "it contains who is trusted",
				Do: []string{"sudo chmod 0640 " + f.Path}})
		case i > 0 && files[0].UID != f.UID && f.UID >= 0:
			out = append(out, Finding{Code: "state-owner", Status: Warning, What: fmt.Sprintf("%s belongs to user %d, but its directory to user %d", f.Path, f.UID, files[0].UID),
				Why: "an agent that does not run as root may not have access; this happens after it was started by hand with sudo",
				Do:  []string{fmt.Sprintf("sudo chown -R %d:%d %s", files[0].UID, files[0].GID, files[0].Path)}})
		}
	}
	return out
}

// judgeDatabase says what came of opening the database.
func judgeDatabase(err error, root bool) (Finding, bool) {
	const why = "it contains who is trusted, and the decisions about peers"
	switch {
	case err == nil:
		return Finding{}, false
	case errors.Is(err, state.ErrNoDatabase):
		return skipped("%v", err), true
	case errors.Is(err, state.ErrReadOnly) && !root:
		return skipped("this user may not read the database: use sudo"), true
	case errors.Is(err, state.ErrNewerSchema):
		return Finding{Code: "state-newer", Status: Error, What: err.Error(), Why: "this version does not start with it: " + why,
			Do: []string{"install the newer version again", "or restore a backup of this version: liqo-agent state restore FILE"}}, true
	case errors.Is(err, state.ErrOlderSchema):
		return info("state-older", "%v", err), true
	case errors.Is(err, state.ErrDamaged):
		return Finding{Code: "state-damaged", Status: Error, What: err.Error(), Why: why + "; the card or disk may be about to fail",
			Do: []string{"start the agent, which recovers what is readable, or restore a backup: liqo-agent state restore FILE", "check the kernel log for disk errors: sudo dmesg | grep -i -e mmc -e i/o"}}, true
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
	const why = "the agent cannot store what it learns, or decisions, so they are lost at the next start; K3s on the same disk stops, too"
	free := []string{"find out what uses the space: sudo du -xh / | sort -h | tail -30", "often, logs and images do: sudo journalctl --vacuum-size=100M; sudo k3s crictl rmi --prune"}
	counted := d.Inodes > 0
	switch {
	case d.ReadOnly:
		return []Finding{{Code: "disk-read-only", Status: Error, What: fmt.Sprintf("%s is on a file system that is mounted read-only", dir), Why: why,
			Do: []string{"the kernel remounts a file system with errors read-only: sudo dmesg | grep -i -e ext4 -e mmc -e i/o", "or move the state: [state] dir"}}}
	case d.FreeBytes < fullBytes:
		return []Finding{{Code: "disk-full", Status: Error, What: fmt.Sprintf("the disk of %s is full: %s of %s free", dir, size(d.FreeBytes), size(d.Bytes)), Why: why, Do: free}}
	case counted && d.FreeInodes < fullInodes:
		return []Finding{{Code: "disk-full", Status: Error, What: fmt.Sprintf("the disk of %s is out of inodes: %d of %d free", dir, d.FreeInodes, d.Inodes), Why: why,
			Do: []string{"find out where many small files are: sudo du --inodes -x / | sort -n | tail -30"}}}
	case d.FreeBytes < lowBytes:
		return []Finding{{Code: "disk-low", Status: Warning, What: fmt.Sprintf("the disk of %s is almost full: %s of %s free", dir, size(d.FreeBytes), size(d.Bytes)), Why: "when it is full, " + why, Do: free}}
	case counted && d.FreeInodes < d.Inodes/lowShare && d.FreeInodes < 10_000:
		return []Finding{{Code: "disk-low", Status: Warning, What: fmt.Sprintf("the disk of %s is low on inodes: %d of %d free", dir, d.FreeInodes, d.Inodes), Why: "when it is full, " + why, Do: free}}
	}
	return nil
}

// judgeSync says what it means how long the disk took.
func judgeSync(took []time.Duration, err error, d look.Disk, dir string, root bool) Finding {
	switch {
	case errors.Is(err, fs.ErrPermission) && !root:
		return skipped("%s free; measuring the write speed needs root", size(d.FreeBytes))
	case err != nil:
		return Finding{Code: "disk-write", Status: Error, What: "cannot write: " + err.Error(), Why: "the agent cannot store what it learns, or decisions",
			Do: []string{"check the kernel log for disk errors: sudo dmesg | tail -50"}}
	case len(took) == 0:
		return skipped("%s free; writing took too long to measure the speed", size(d.FreeBytes))
	}
	median, worst := took[len(took)/2], took[len(took)-1]
	text := fmt.Sprintf("writing a small file to %s took %s, at worst %s", dir, round(median), round(worst))
	if median < slowSync {
		return fine("%s free; %s", size(d.FreeBytes), text)
	}
	f := Finding{Code: "disk-slow", Status: Warning, What: text,
		Why: "decisions and the database of K3s wait for the disk: leases expire, and API requests time out",
		Do:  []string{"find out what else writes: sudo iotop -o, or sudo pidstat -d 5"}}
	if median > verySlowSync {
		f.Status = Error
	}
	if d.Card {
		f.Do = append(f.Do, "it is an SD card or eMMC ("+d.Device+"): a card of class A2, or a USB SSD for /var/lib, is many times faster; a card that has become slow is often worn out")
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
	facts.arp, _ = b.ask.arpTable() // 0 if it is not known
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
	total, available uint64
	arp              look.ARPTable
	limits           look.Limits
	packets          control.Packets
}

// judgeResources says whether that is enough.
func judgeResources(r resources) []Finding {
	var out []Finding
	l := r.limits
	if l.OOMKills > 0 {
		out = append(out, Finding{Code: "memory-killed", Status: Warning, What: fmt.Sprintf("the kernel killed the agent %d times because it needed more memory than %s", l.OOMKills, size(l.MemoryMax)),
			Why: "each time, peers lose their connections, and do not see this box for a moment", Do: []string{"raise MemoryMax: sudo systemctl edit liqo-agent", "or lower discovery.max_neighbours"}})
	} else if l.MemoryMax > 0 && l.Memory > l.MemoryMax/10*9 {
		out = append(out, Finding{Code: "memory-limit", Status: Warning, What: fmt.Sprintf("the agent uses %s of its limit of %s of memory", size(l.Memory), size(l.MemoryMax)),
			Why: "the kernel kills it if it needs more", Do: []string{"raise MemoryMax: sudo systemctl edit liqo-agent", "or lower discovery.max_neighbours"}})
	}
	if r.total > 0 && r.available < 32<<20 {
		out = append(out, Finding{Code: "memory-low", Status: Warning, What: fmt.Sprintf("only %s of %s of memory are available", size(r.available), size(r.total)),
			Why: "without memory, the kernel kills programs, or everything becomes slow", Do: []string{"find out what uses it: ps aux --sort=-rss | head"}})
	}
	if l.MaxFiles > 0 && l.Files > l.MaxFiles/10*8 {
		out = append(out, Finding{Code: "files-limit", Status: Warning, What: fmt.Sprintf("the agent has %d files and connections open, of at most %d", l.Files, l.MaxFiles),
			Why: "at the limit, it cannot accept connections of peers", Do: []string{"raise LimitNOFILE: sudo systemctl edit liqo-agent", "or lower endpoint.max_connections"}})
	}
	if r.arp.Forced && r.arp.Entries > r.arp.Most/10*8 {
		out = append(out, Finding{Code: "arp-table", Status: Warning, What: fmt.Sprintf("the kernel's ARP table has %d entries, of at most %d", r.arp.Entries, r.arp.Most),
			Why: "when it is full, this machine reaches no further neighbours and pods, and maybe not its router",
			Do:  []string{"make room, and write it into /etc/sysctl.d: sudo sysctl -w net.ipv4.neigh.default.gc_thresh2=8192 net.ipv4.neigh.default.gc_thresh3=16384", "or lower discovery.max_neighbours"}})
	}
	if p := r.packets; p.SocketDrops > 0 && p.SocketDrops > p.Received/100 {
		f := Finding{Code: "socket-drops", Status: Warning, What: fmt.Sprintf("the kernel dropped %d of %d mDNS packets because the agent did not read them in time", p.SocketDrops, p.Received),
			Why: "clusters may be found late, or seem to be gone", Do: []string{"allow the agent a larger buffer with CAP_NET_ADMIN, which the unit grants", "or: sudo sysctl -w net.core.rmem_max=4194304"}}
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
