package usage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
)

// atLeast is the memory of a node without pods, in bytes: metrics-server takes 0 for not
// known.
const atLeast = 1

// WriteResource writes reports as a kubelet's /metrics/resource has them, in the text
// format of Prometheus. There is a total only if there is one report.
func WriteResource(to io.Writer, reports []Report) error {
	w := bufio.NewWriter(to)
	failed := 0
	for _, r := range reports {
		if !r.Whole {
			failed = 1
		}
	}
	// family writes a family of metrics of containers, and of those of the node in front.
	family := func(name, help, kind string, value func(Amount) string, stamped bool) {
		fmt.Fprintf(w, "# HELP %s [STABLE] %s\n# TYPE %s %s\n", name, help, name, kind)
		for _, r := range reports {
			at := ""
			if stamped {
				at = " " + strconv.FormatInt(r.Time.UnixMilli(), 10)
			}
			for _, p := range r.Pods {
				for _, c := range p.Containers {
					fmt.Fprintf(w, "%s{container=%q,namespace=%q,pod=%q} %s%s\n", name, c.Name, p.Namespace, p.Name, value(c.Amount), at)
				}
			}
		}
	}
	family("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", "counter",
		func(a Amount) string { return float(a.Seconds) }, true)
	family("container_memory_working_set_bytes", "Current working set of the container in bytes", "gauge",
		func(a Amount) string { return float(a.Memory) }, true)
	family("container_start_time_seconds", "Start time of the container since unix epoch in seconds", "gauge",
		func(a Amount) string { return float(float64(a.Since.UnixMilli()) / 1000) }, false)
	if len(reports) == 1 && reports[0].Whole {
		r := reports[0]
		fmt.Fprintf(w, "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds\n"+
			"# TYPE node_cpu_usage_seconds_total counter\nnode_cpu_usage_seconds_total %s %d\n"+
			"# HELP node_memory_working_set_bytes [STABLE] Current working set of the node in bytes\n"+
			"# TYPE node_memory_working_set_bytes gauge\nnode_memory_working_set_bytes %s %d\n",
			float(r.Total.Seconds), r.Time.UnixMilli(), float(max(r.Total.Memory, atLeast)), r.Time.UnixMilli())
	}
	fmt.Fprintf(w, "# HELP resource_scrape_error [STABLE] 1 if there was an error while getting container metrics, 0 otherwise\n"+
		"# TYPE resource_scrape_error gauge\nresource_scrape_error %d\n", failed)
	return w.Flush()
}

func float(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// The parts of a kubelet's summary (k8s.io/kubelet/pkg/apis/stats/v1alpha1) that there are
// here.
type (
	summary struct {
		Node nodeStats  `json:"node"`
		Pods []podStats `json:"pods"`
	}
	nodeStats struct {
		Name   string       `json:"nodeName"`
		Start  *time.Time   `json:"startTime"`
		CPU    *cpuStats    `json:"cpu,omitempty"`
		Memory *memoryStats `json:"memory,omitempty"`
	}
	podStats struct {
		Ref        podReference     `json:"podRef"`
		Start      *time.Time       `json:"startTime"`
		Containers []containerStats `json:"containers"`
	}
	podReference struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		UID       string `json:"uid"`
	}
	containerStats struct {
		Name   string       `json:"name"`
		Start  *time.Time   `json:"startTime"`
		CPU    *cpuStats    `json:"cpu"`
		Memory *memoryStats `json:"memory"`
	}
	cpuStats struct {
		Time            *time.Time `json:"time"`
		NanoCores       uint64     `json:"usageNanoCores"`
		CoreNanoSeconds uint64     `json:"usageCoreNanoSeconds"`
	}
	memoryStats struct {
		Time       *time.Time `json:"time"`
		WorkingSet uint64     `json:"workingSetBytes"`
	}
)

// WriteSummary writes reports as a kubelet's /stats/summary has them, in JSON. There is a
// total only if there is one report.
func WriteSummary(to io.Writer, reports []Report) error {
	s := summary{Pods: []podStats{}}
	for _, r := range reports {
		for _, p := range r.Pods {
			pod := podStats{Ref: podReference{p.Name, p.Namespace, string(p.UID)}, Start: moment(p.Started)}
			for _, c := range p.Containers {
				cpu, memory := statsOf(c.Amount, r.Time)
				pod.Containers = append(pod.Containers, containerStats{c.Name, moment(c.Since), cpu, memory})
			}
			s.Pods = append(s.Pods, pod)
		}
	}
	if len(reports) == 1 {
		r := reports[0]
		s.Node.Name = r.Node
		if r.Whole {
			s.Node.Start = moment(r.Total.Since)
			s.Node.CPU, s.Node.Memory = statsOf(r.Total, r.Time)
		}
	}
	return json.NewEncoder(to).Encode(s)
}

// statsOf converts an amount. Its parts are bounded, and fit.
func statsOf(a Amount, at time.Time) (*cpuStats, *memoryStats) {
	return &cpuStats{moment(at), uint64(a.Cores * 1e9), uint64(a.Seconds * 1e9)}, &memoryStats{moment(at), uint64(a.Memory)}
}

// moment returns a time as kubelets write it, nil for none and for what cannot be written.
func moment(t time.Time) *time.Time {
	t = t.UTC().Truncate(time.Second)
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return nil
	}
	return &t
}
