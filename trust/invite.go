package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode"

	"liqo.io/agent/peer"
)

const (
	invitePrefix   = "liqo1-"
	inviteVersion  = 1
	inviteDomain   = "liqo-agent invite token v1"
	inviteChecksum = 4
	// maxInvite is more than twice the longest token, for white space in it.
	maxInvite = 1 << 10
)

// Invite is a one-time token: whoever has it knows by which key to recognise
// the issuer, and is let in by the issuer.
//
// It contains a secret, so it does not print itself: formatted in any way,
// logged with slog, or encoded as JSON it is its ID and issuer. Only Token and
// Wire, and the field itself, reveal the secret. (Package fmt does not ask
// values in unexported fields of a struct how they want to be printed: do not
// print such a struct.)
type Invite struct {
	Issuer      peer.ClusterID
	Fingerprint peer.Fingerprint // of the issuer
	ID          [8]byte          // by which the issuer finds it; no secret
	Secret      [16]byte
}

// NewInvite draws a new invite of the cluster issuer, whose key is fp.
func NewInvite(issuer peer.ClusterID, fp peer.Fingerprint) (Invite, error) {
	i := Invite{Issuer: issuer, Fingerprint: fp}
	if _, err := peer.ParseClusterID(string(issuer)); err != nil {
		return Invite{}, fmt.Errorf("issue an invite: %w", err)
	}
	if fp.IsZero() {
		return Invite{}, errors.New("issue an invite: the fingerprint of the issuer is unknown")
	}
	for _, b := range [][]byte{i.ID[:], i.Secret[:]} {
		if _, err := rand.Read(b); err != nil {
			return Invite{}, fmt.Errorf("draw the secret of an invite: %w", err)
		}
	}
	return i, nil
}

// Token returns the invite as people copy it: "liqo1-" and lower-case base32
// (Crockford's alphabet). It contains the secret and a checksum.
func (i Invite) Token() string {
	body := []byte{inviteVersion, byte(len(i.Issuer))}
	body = append(body, i.Issuer...)
	body = append(body, i.Fingerprint[:]...)
	body = append(body, i.ID[:]...)
	body = append(body, i.Secret[:]...)
	return invitePrefix + crockford.EncodeToString(append(body, checksum(body)...))
}

func checksum(body []byte) []byte {
	sum := sha256.Sum256(append([]byte(inviteDomain), body...))
	return sum[:inviteChecksum]
}

// ParseInvite reads a token as Token writes it. White space, which copying from
// a mail or a terminal puts around and into it, and upper case are forgiven. Its
// errors tell a text that is no token from one that was copied badly, and never
// quote it.
func ParseInvite(s string) (Invite, error) {
	if len(s) > maxInvite {
		return Invite{}, fmt.Errorf("this is no invite token: it has %d bytes, and tokens have fewer than 200", len(s))
	}
	s = strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, s))
	digits, ok := strings.CutPrefix(s, invitePrefix)
	switch {
	case s == "":
		return Invite{}, errors.New("the invite token is empty")
	case !ok && strings.HasPrefix(s, "liqo") && strings.Contains(s, "-"):
		return Invite{}, fmt.Errorf("the invite token is of a kind this version does not know: it should begin with %q; "+
			"if the issuer runs a newer version, update this one", invitePrefix)
	case !ok:
		return Invite{}, fmt.Errorf("this is no invite token: one begins with %q, as `liqo-agent invite` prints it", invitePrefix)
	}
	raw, err := crockford.DecodeString(digits)
	if err != nil {
		return Invite{}, errors.New("the invite token has a character that tokens do not contain, or was cut off; copy it again, whole")
	}
	i, err := decodeInvite(raw)
	if err != nil {
		return Invite{}, err
	}
	if i.Token() != s {
		// base32 leaves bits of the last character unused.
		return Invite{}, errMistyped
	}
	return i, nil
}

var errMistyped = errors.New("the invite token was mistyped, or cut off: its checksum is wrong; copy it again, whole")

func decodeInvite(raw []byte) (Invite, error) {
	var i Invite
	if len(raw) < inviteChecksum+2 {
		return Invite{}, errMistyped
	}
	body, sum := raw[:len(raw)-inviteChecksum], raw[len(raw)-inviteChecksum:]
	if string(checksum(body)) != string(sum) {
		return Invite{}, errMistyped
	}
	// What follows is as its issuer meant it.
	version, size, rest := body[0], int(body[1]), body[2:]
	if version != inviteVersion {
		return Invite{}, fmt.Errorf("the invite token has version %d, and this program knows version %d; update it", version, inviteVersion)
	}
	if len(rest) != size+len(i.Fingerprint)+len(i.ID)+len(i.Secret) {
		return Invite{}, fmt.Errorf("the invite token is malformed: it has %d bytes after its header; ask the issuer for another", len(rest))
	}
	id, err := peer.ParseClusterID(string(rest[:size]))
	if err != nil {
		return Invite{}, fmt.Errorf("the invite token is malformed: its issuer's %w; ask the issuer for another", err)
	}
	i.Issuer, rest = id, rest[size:]
	rest = rest[copy(i.Fingerprint[:], rest):]
	rest = rest[copy(i.ID[:], rest):]
	copy(i.Secret[:], rest)
	if i.Fingerprint.IsZero() {
		return Invite{}, errors.New("the invite token is malformed: it names no key of its issuer; ask the issuer for another")
	}
	return i, nil
}

// Wire returns what the bearer sends to the issuer, and to nobody else:
// "<ID>.<secret>", 16 and 32 lower-case hexadecimal digits.
func (i Invite) Wire() string { return i.IDString() + "." + hex.EncodeToString(i.Secret[:]) }

// IDString returns the invite's ID as 16 lower-case hexadecimal digits.
func (i Invite) IDString() string { return hex.EncodeToString(i.ID[:]) }

// Hash returns what the issuer keeps of the secret: its SHA-256. The secret is
// random, so it need not be made costly to guess.
func (i Invite) Hash() [32]byte { return sha256.Sum256(i.Secret[:]) }

// ParseWire reads what Wire writes, from a stranger: exactly that and nothing
// else. It returns the invite's ID and the hash of the secret. Its error does
// not quote s.
func ParseWire(s string) (id string, hash [32]byte, err error) {
	var i Invite
	id, secret, _ := strings.Cut(s, ".")
	if len(id) != 2*len(i.ID) || len(secret) != 2*len(i.Secret) || strings.ToLower(s) != s {
		return "", [32]byte{}, errWire
	}
	if _, err := hex.Decode(i.ID[:], []byte(id)); err != nil {
		return "", [32]byte{}, errWire
	}
	if _, err := hex.Decode(i.Secret[:], []byte(secret)); err != nil {
		return "", [32]byte{}, errWire
	}
	return id, i.Hash(), nil
}

var errWire = errors.New("the token is malformed: want 16 hexadecimal digits, a dot, and 32 more; send what the invite says")

// String returns the invite without its secret, for logs. See Token.
func (i Invite) String() string {
	return fmt.Sprintf("invite %s of cluster %s", i.IDString(), i.Issuer)
}

// Format implements fmt.Formatter: every verb prints String.
func (i Invite) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, i.String()) }

// LogValue implements slog.LogValuer as String does.
func (i Invite) LogValue() slog.Value { return slog.StringValue(i.String()) }

// MarshalText implements encoding.TextMarshaler as String does. There is no way
// back.
func (i Invite) MarshalText() ([]byte, error) { return []byte(i.String()), nil }
