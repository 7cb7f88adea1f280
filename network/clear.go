package network

import (
	"errors"

	"liqo.io/agent/network/filter"
	"liqo.io/agent/network/tun"
	"liqo.io/agent/network/wireguard"
)

// Clear removes the device of that name with that of WireGuard, the routes through them and the rules for them, which outlive the agent, and which
// no engine may be using. Where there is nothing to remove it returns nil, with whatever rights.
func Clear(device string) error {
	used := exists(device)
	err := errors.Join(wireguard.Remove(TunnelOf(device)), tun.Remove(device))
	left, unknown := filter.Leftovers()
	switch {
	case unknown != nil && used:
		return errors.Join(err, unknown)
	case unknown != nil, len(left) == 0: // a machine on which nothing was ever connected may have no nftables, or not for us
		return err
	}
	table, failed := filter.Open()
	if failed == nil {
		failed = errors.Join(table.Remove(), table.Close())
	}
	return errors.Join(err, failed)
}
