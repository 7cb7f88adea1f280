package problems

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"liqo.io/agent/agent/control"
	"liqo.io/agent/health"
	"liqo.io/agent/peer/text"
	"liqo.io/agent/sharing/volumes"
)

// lookAtStorage checks the claims at other clusters, and those of others here. The disks of the nodes in pressed are nearly full.
func (m *Monitor) lookAtStorage(now control.Storage, pressed []string) {
	size := func(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
	var retained []health.Finding
	count, bytes := 0, int64(0)
	for _, g := range now.Guests {
		count, bytes = count+g.Claims, bytes+g.Bytes
		if g.State == control.StorageRetained {
			retained = append(retained, health.Finding{About: g.ID, Since: g.Since, Args: health.Args{
				"peer": g.Name, "id": g.ID, "claims": claims(g.Claims), "size": size(g.Bytes), "until": g.Until.Format(time.RFC3339),
			}})
		}
	}
	m.cfg.Tracker.Replace(health.StorageRetained, retained...)
	m.cfg.Tracker.When(health.StoragePressure, count > 0 && len(pressed) > 0, health.Args{
		"nodes": text.List(pressed, 4, ", "), "claims": claims(count), "size": size(bytes),
	})
	for kind, state := range map[*health.Kind]volumes.State{health.StorageAway: volumes.StateParted, health.StorageMissing: volumes.StateMissing} {
		count, bytes, name := make(map[string]int), make(map[string]int64), make(map[string]string)
		for _, o := range now.Own {
			if o.State == string(state) {
				count[o.ID]++
				bytes[o.ID] += o.Bytes
				name[o.ID] = o.Name
			}
		}
		var found []health.Finding
		for _, id := range slices.Sorted(maps.Keys(count)) {
			found = append(found, health.Finding{About: id, Args: health.Args{"peer": name[id], "id": id, "claims": claims(count[id]), "size": size(bytes[id])}})
		}
		m.cfg.Tracker.Replace(kind, found...)
	}
	m.cfg.Tracker.When(health.StorageUnusable, now.Problem != "", health.Args{"error": now.Problem})
}

// claims is a number of claims, in words.
func claims(n int) string {
	if n == 1 {
		return "1 claim"
	}
	return strconv.Itoa(n) + " claims"
}
