//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// exact fails the scenario unless each pod with such a name that was bound is once,
// and was never more often, at the provider, and none is there that stands for
// nobody.
func (p *pair) exact(prefix string) {
	mine, err := p.mine.pick(named(prefix, func(s sighting) bool { return !s.bound.IsZero() }))
	if err != nil {
		p.Fatalf("%v", err)
	}
	theirs := p.theirs.byOrigin(p.scenarioRun)
	lost, twice := 0, 0
	for _, s := range mine {
		switch there := theirs[s.uid]; {
		case len(there) == 0:
			lost++
		case len(there) > 1:
			twice++
		}
		delete(theirs, s.uid)
	}
	strays := 0
	for _, there := range theirs {
		for _, s := range there {
			if strings.HasPrefix(s.name, prefix+"-") {
				strays++
			}
		}
	}
	if lost+twice+strays > 0 {
		p.Errorf("of %d pods %d were never at the provider, %d were there more than once, and %d there stand for none", len(mine), lost, twice, strays)
	}
}

// measureBurst measures many pods at once.
func measureBurst(r *scenarioRun) {
	const size = 500
	p := r.newPair("")
	p.share()
	first := p.create("first", p.onProvider())
	p.mine.awaitUID(r, "the first pod runs", first, isReady)

	at := time.Now()
	p.x.request("POST", "/apis/apps/v1/namespaces/"+shop+"/deployments", fmt.Sprintf(`{"metadata": {"name": "wave"}, "spec": {"replicas": %d,
		"selector": {"matchLabels": {"app": "wave"}}, "template": {"metadata": {"labels": {"app": "wave"}}, "spec": {%s, %s}}}}`, size, p.onProvider(), podSpec))
	p.arrive(fmt.Sprintf("%d pods of a Deployment", size), "wave", size, at, "controllers make 20 pods a second, as they do by default")
	at = time.Now()
	p.x.request("DELETE", "/apis/apps/v1/namespaces/"+shop+"/deployments/wave", `{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}`)
	p.leave(fmt.Sprintf("%d pods of a Deployment", size), "wave", at)
	p.exact("wave")

	// Past the controllers and the scheduler, which are slower than that.
	at = time.Now()
	p.createMany(size, "flood", `"nodeName": "`+p.node()+`"`)
	p.arrive(fmt.Sprintf("%d pods bound when they are made", size), "flood", size, at, "16 clients make them, without controllers and scheduler")
	at = time.Now()
	p.x.request("DELETE", "/api/v1/namespaces/"+shop+"/pods?fieldSelector=metadata.name%21%3Dfirst", "")
	p.leave(fmt.Sprintf("%d pods bound when they are made", size), "flood", at)
	p.exact("flood")
}

// arrive waits until all pods run and reports when the last one was where.
func (p *pair) arrive(what, prefix string, size int, at time.Time, how string) {
	mine := p.mine.await(p.scenarioRun, 5*time.Minute, "all pods run", size, named(prefix, isReady))
	theirs := p.theirs.byOrigin(p.scenarioRun)
	var bound, created, running, ready, lag, back spread
	for _, s := range mine {
		there := theirs[s.uid]
		if len(there) != 1 {
			p.Fatalf("pod %s is %d times at the provider", s.name, len(there))
		}
		bound, created = append(bound, s.bound.Sub(at)), append(created, there[0].created.Sub(at))
		running, ready = append(running, there[0].ready.Sub(at)), append(ready, s.ready.Sub(at))
		lag, back = append(lag, there[0].created.Sub(s.bound)), append(back, s.ready.Sub(there[0].ready))
	}
	p.exact(prefix)
	used := p.count().used
	p.add(what+": all bound; created at the provider; run there; seen to run at the consumer", "",
		strings.Join([]string{short(slices.Max(bound)), short(slices.Max(created)), short(slices.Max(running)), short(slices.Max(ready))}, "; "), how+"; "+twoKube)
	p.add(what+": bound -> created at the provider", "", lag.tail(), "of each")
	p.add(what+": runs at the provider -> seen at the consumer", "", back.tail(), "of each")
	p.add(what+": lost; duplicate", "0; 0", "0; 0", "else this fails; every pod that was ever at the provider counts")
	p.add(what+": memory, consumer; provider", "", fmt.Sprintf("%s; %s", mib(used[0].rss), mib(used[1].rss)), "RSS while they run")
}

// leave waits until the pods are gone and reports how long that took.
func (p *pair) leave(what, prefix string, at time.Time) {
	p.mine.await(p.scenarioRun, 5*time.Minute, "all pods are gone", 0, named(prefix, isThere))
	took := time.Since(at)
	p.theirs.await(p.scenarioRun, time.Minute, "all pods are gone at the provider", 0, named(prefix, isThere))
	p.add(what+": deleted and gone on both sides", "", short(took), "with a grace period of one second, which kwok does not use up")
}

// measureSharingPeers measures the memory of a consumer with ten simulated
// providers and a real one that runs a hundred pods.
func measureSharingPeers(r *scenarioRun) {
	const crowdSize, size = 10, 100
	p := r.newPair("[discovery]\nautojoin_untrusted = true\n")
	p.y.cli("peers", "accept", p.xID, "--yes")
	addCrowd(p.bed).Start(neighbours(r, crowdSize))
	p.x.awaitJoined(2*time.Minute, crowdSize+1)
	r.await(2*time.Minute, "all nodes are ready", func() error { return p.x.virtualNodes(crowdSize + 1) })
	p.watch()
	p.pause(30 * time.Second)
	empty := p.count()
	p.createMany(size, "many", p.onProvider())
	p.mine.await(r, 2*time.Minute, "a hundred pods run", size, named("many", isReady))
	p.pause(30 * time.Second)
	full := p.count()
	p.exact("many")
	how := fmt.Sprintf("%d joined providers, all but one simulated, %d pods at the real one; RSS 30 s later", crowdSize+1, size)
	p.add("memory with 10 joined peers and 100 offloaded pods", "at most 64 MB", fmt.Sprintf("%s, peak %s", mib(full.used[0].rss), mib(full.used[0].peakRSS)), how)
	p.add("memory with 10 joined peers", "", mib(empty.used[0].rss), "before there were pods")
	p.add("memory of the provider of 100 pods", "", fmt.Sprintf("%s, peak %s", mib(full.used[1].rss), mib(full.used[1].peakRSS)), how)
}

// requestCount is a line of an API server's metrics.
var requestCount = regexp.MustCompile(`^apiserver_request_total\{(.*)\} (\S+)$`)

// writeRequests returns how many write requests the box's API server has answered,
// by verb, resource and, where it refused, status: its own count.
func (x *box) writeRequests() map[string]int {
	out := make(map[string]int)
	for lines := bufio.NewScanner(bytes.NewReader(x.request("GET", "/metrics", ""))); lines.Scan(); {
		found := requestCount.FindStringSubmatch(lines.Text())
		if found == nil {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(","+found[1], ","+name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		switch label("verb") {
		case "POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION":
		default:
			continue
		}
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			x.r.Fatalf("metrics: %v", err)
		}
		key := label("verb") + " " + label("resource")
		if sub := label("subresource"); sub != "" {
			key += "/" + sub
		}
		if code := label("code"); !strings.HasPrefix(code, "2") {
			key += " (" + code + ")"
		}
		out[key] += int(n)
	}
	return out
}

// difference returns what was counted in between.
func difference(before, after map[string]int) map[string]int {
	out := make(map[string]int)
	for key, n := range after {
		if n -= before[key]; n > 0 {
			out[key] = n
		}
	}
	return out
}

func list(counts map[string]int) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		out = append(out, fmt.Sprintf("%s %d", key, counts[key]))
	}
	return strings.Join(out, ", ")
}
