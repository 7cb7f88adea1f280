package filter

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Watch calls changed when somebody else changed our tables, until ctx ends. It calls once
// until the next Set, which repairs them. It must run in the network namespace of Open.
// Start it before the first Set; if there was one already, it calls at once. It returns
// nil when ctx ended.
func (t *Table) Watch(ctx context.Context, changed func()) error {
	socket, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return fmt.Errorf("watch nftables: %w", err)
	}
	if err := errors.Join(socket.SetReadBuffer(room), socket.JoinGroup(unix.NFNLGRP_NFTABLES)); err != nil {
		return errors.Join(fmt.Errorf("watch nftables: %w", err), socket.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer func() {
		if stop() {
			_ = socket.Close()
		}
	}()
	if t.spoil() {
		changed()
	}
	pending := false // a change of others, whose end was not told yet
	for {
		messages, err := socket.Receive()
		if ctx.Err() != nil {
			return nil
		}
		// Messages were lost if the buffer was too small.
		look := errors.Is(err, unix.ENOBUFS)
		if err != nil && !look {
			return fmt.Errorf("watch nftables: %w", err)
		}
		for _, m := range messages {
			pending = pending || t.foreign(m)
			// The number of the generation ends what is told of a change. A Set before that
			// would be followed by the rest, and repeated for it.
			if pending && isGeneration(m) {
				look = true
			}
		}
		if !look {
			continue
		}
		if pending = false; t.spoil() {
			changed()
		}
	}
}

// spoil forgets what the kernel has, and reports whether it was known.
func (t *Table) spoil() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := !t.unknown()
	t.current = [2]*ruleset{}
	return known
}

// foreign reports whether a message tells of a change of our tables by others.
func (t *Table) foreign(m netlink.Message) bool {
	_, own := t.sockets.Load(m.Header.PID)
	return !own && isOurs(m)
}

func isGeneration(m netlink.Message) bool {
	return m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN
}

// isOurs reports whether a message is about one of our tables, or something in it.
func isOurs(m netlink.Message) bool {
	const header = 4 // struct nfgenmsg: family, version, resource
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || isGeneration(m) || len(m.Data) < header {
		return false
	}
	if family := m.Data[0]; family != unix.NFPROTO_IPV4 && family != unix.NFPROTO_IPV6 {
		return false
	}
	attributes, err := netlink.NewAttributeDecoder(m.Data[header:])
	if err != nil {
		return false
	}
	attributes.ByteOrder = binary.BigEndian
	for attributes.Next() {
		// The first attribute of every kind of object is the name of its table.
		if attributes.Type() == unix.NFTA_TABLE_NAME {
			return string(bytes.TrimRight(attributes.Bytes(), "\x00")) == tableName
		}
	}
	return false
}
