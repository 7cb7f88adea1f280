package packet

// Reason is why a frame is refused. It is the error that Check returns, so that
// counting one costs neither an allocation nor formatting.
type Reason uint8

// The reasons, in the order in which Check looks for them.
const (
	// Truncated: the frame ends inside one of its headers.
	Truncated Reason = iota + 1
	// BadVersion: neither IPv4 nor IPv6.
	BadVersion
	// BadFlags: flags of the virtio-net header that a TUN device does not set.
	BadFlags
	// BadLength: the packet's own length is not the length of the frame, or a
	// length inside it is impossible.
	BadLength
	// BadChecksum: the checksum of the IPv4 header is wrong.
	BadChecksum
	// BadAddress: the source or destination is not a unicast address that may
	// leave a host.
	BadAddress
	// BadOption: IPv4 options or IPv6 extension headers that are malformed, or
	// that change who the packet is from or for.
	BadOption
	// BadFragment: a fragment that no host sends, or one that is to be cut or
	// summed as if it were whole.
	BadFragment
	// BadTransport: the TCP or UDP header is impossible.
	BadTransport
	// BadPartial: the missing checksum is not where the transport protocol has it.
	BadPartial
	// BadSegments: the segmentation does not fit the packet.
	BadSegments
	// TooBig: the packet, or a segment of it, is larger than the MTU.
	TooBig

	// Reasons is one more than the highest reason: the length of an array
	// indexed by Reason.
	Reasons = int(TooBig) + 1
)

var reasons = [Reasons]string{
	0:            "none",
	Truncated:    "truncated",
	BadVersion:   "version",
	BadFlags:     "flags",
	BadLength:    "length",
	BadChecksum:  "checksum",
	BadAddress:   "address",
	BadOption:    "option",
	BadFragment:  "fragment",
	BadTransport: "transport",
	BadPartial:   "partial_checksum",
	BadSegments:  "segments",
	TooBig:       "too_big",
}

// String returns a short name in lower case.
func (r Reason) String() string {
	if int(r) >= len(reasons) {
		return "unknown"
	}
	return reasons[r]
}

// Error says which rule a frame broke.
func (r Reason) Error() string { return "frame refused: " + r.String() }
