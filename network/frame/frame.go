package frame

import (
	"errors"
	"fmt"

	"liqo.io/agent/network/packet"
)

// Type is the first byte of a frame.
type Type uint8

// The types that are known.
const (
	Packet  Type = 1
	Control Type = 2
	Probe   Type = 3
	Echo    Type = 4
)

// Lengths in bytes.
const (
	// HeaderLen is the length of the header of every frame.
	HeaderLen = 4
	// MaxControl is the length of the longest control message.
	MaxControl = 4096
	// ProbeLen is the length of the payload of a probe and its echo.
	ProbeLen = 8

	// minPacket is a virtio-net header and the first byte of a packet.
	minPacket = packet.HeaderLen + 1
	// maxFrame is the length of the longest frame of any type.
	maxFrame = HeaderLen + packet.MaxLen
)

// optional is the lowest of the types that are passed over when they are unknown.
const optional Type = 128

// Errors by which a Reader ends. The stream cannot be used any further.
var (
	// ErrType means that the other end sent a type that is unknown here, and that
	// must not be passed over.
	ErrType = errors.New("unknown type of frame")
	// ErrLength means that a length is not possible for its type.
	ErrLength = errors.New("impossible length of frame")
)

// String returns the name of the type, or its number.
func (t Type) String() string {
	switch t {
	case Packet:
		return "packet"
	case Control:
		return "control"
	case Probe:
		return "probe"
	case Echo:
		return "echo"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// check reports whether a frame of that type and length of payload may be.
func (t Type) check(length int) error {
	low, high := 0, packet.MaxLen
	switch t {
	case Packet:
		low = minPacket
	case Control:
		low, high = 1, MaxControl
	case Probe, Echo:
		low, high = ProbeLen, ProbeLen
	default:
		if t < optional {
			return fmt.Errorf("%w: %d", ErrType, uint8(t))
		}
	}
	if length < low || length > high {
		return fmt.Errorf("%w: %s of %d bytes", ErrLength, t, length)
	}
	return nil
}

// Append adds a frame to b, whose payload must be one that the type can have.
func Append(b []byte, t Type, payload []byte) []byte {
	n := len(payload)
	b = append(b, byte(t), byte(n>>16), byte(n>>8), byte(n))
	return append(b, payload...)
}
