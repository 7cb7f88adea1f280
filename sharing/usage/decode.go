package usage

import (
	"bytes"
	"encoding/json"
	"fmt"

	"liqo.io/agent/sharing/workload"
)

const (
	// What of an answer is taken, so that little text does not become much memory.
	maxPods       = 10_000
	maxContainers = 100

	// More than that no container uses. Sums of it fit into the 64 bits of scrapers.
	maxCores  = 10_000
	maxMemory = 1 << 48 // bytes
)

// podMetricsList is what is read of a PodMetricsList of metrics.k8s.io/v1beta1.
type podMetricsList struct {
	Items podList `json:"items"`
}

type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Containers containerList `json:"containers"`
}

type containerMetrics struct {
	Name  string `json:"name"`
	Usage struct {
		CPU    string `json:"cpu"`
		Memory string `json:"memory"`
	} `json:"usage"`
}

type (
	podList       []podMetrics
	containerList []containerMetrics
)

// UnmarshalJSON implements json.Unmarshaler.
func (l *podList) UnmarshalJSON(text []byte) (err error) {
	*l, err = atMost[podMetrics](text, maxPods)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *containerList) UnmarshalJSON(text []byte) (err error) {
	*l, err = atMost[containerMetrics](text, maxContainers)
	return err
}

// atMost decodes an array, or fails before it has more elements than that.
func atMost[T any](text []byte, most int) (out []T, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	begin, err := d.Token()
	if err != nil || begin == nil { // null is an empty array
		return nil, err
	}
	if begin != json.Delim('[') {
		return nil, fmt.Errorf("%v in place of an array", begin)
	}
	for d.More() {
		if len(out) == most {
			return nil, fmt.Errorf("an array has more than %d elements", most)
		}
		var element T
		if err := d.Decode(&element); err != nil {
			return nil, err
		}
		out = append(out, element)
	}
	_, err = d.Token()
	return out, err
}

// sample is what a container uses.
type sample struct {
	cores  float64
	memory float64 // bytes
}

// samples returns what the containers of a pod use, by name; nil for nil, and if any of it
// makes no sense.
func (p *podMetrics) samples() map[string]sample {
	if p == nil {
		return nil
	}
	out := make(map[string]sample, len(p.Containers))
	for _, c := range p.Containers {
		cores, known := number(c.Usage.CPU, maxCores)
		memory, also := number(c.Usage.Memory, maxMemory)
		if _, twice := out[c.Name]; twice || !known || !also {
			return nil
		}
		out[c.Name] = sample{cores: cores, memory: memory}
	}
	return out
}

// number reads a quantity from 0 to most.
func number(text string, most float64) (float64, bool) {
	q, ok := workload.Quantity(text)
	if !ok {
		return 0, false
	}
	value := q.AsApproximateFloat64()
	return value, value <= most
}
