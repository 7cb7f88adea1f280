package trust

import "time"

// Ends returns when the certificates end that others made for our key and that are
// shown now: that of the fleet and the named one. The time is zero where there is
// none.
func (i *Issuer) Ends() (fleet, named time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.fleet != nil {
		fleet = i.fleet.NotAfter
	}
	if i.named != nil && i.named.Leaf != nil {
		named = i.named.Leaf.NotAfter
	}
	return fleet, named
}
