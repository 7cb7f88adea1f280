package resolver

import (
	"time"

	"github.com/miekg/dns"
)

// Outcome is what came of a question. Only Found, NoData and NoName say
// something about what is asked for; all others mean that it is not known.
type Outcome string

// The outcomes. They are printed and shown in statuses, so they never change.
const (
	// Found: there are records.
	Found Outcome = "Found"
	// NoData: the name exists and has no such records.
	NoData Outcome = "NoData"
	// NoName: the name does not exist (NXDOMAIN).
	NoName Outcome = "NoName"
	// ServerFailure: the server says that it cannot answer (SERVFAIL, for one
	// because DNSSEC validation failed, or any other code of its own trouble).
	ServerFailure Outcome = "ServerFailure"
	// Refused: the server does not answer us (REFUSED, NOTAUTH).
	Refused Outcome = "Refused"
	// Timeout: no server answered in time.
	Timeout Outcome = "Timeout"
	// Unreachable: no server could be reached.
	Unreachable Outcome = "Unreachable"
	// BadAnswer: what was answered cannot be right, such as a chain of aliases that
	// never ends.
	BadAnswer Outcome = "BadAnswer"
)

// Conclusive reports whether the outcome says something about what is asked for.
func (o Outcome) Conclusive() bool { return o == Found || o == NoData || o == NoName }

// Answer is what is known about one question.
type Answer struct {
	Outcome Outcome
	// Records are of the type that was asked for, with the name that was asked for
	// or the one that its aliases (CNAME, DNAME) lead to. Nothing else that the
	// server sent is in them.
	Records []dns.RR
	// Name is the name that the records belong to, the end of the aliases.
	Name string
	// TTL is how long the answer holds: the least of all records on the way, and for
	// NoData and NoName what RFC 2308 section 5 makes of the SOA, 0 when there is
	// none.
	TTL time.Duration
	// Authenticated: the server says that it validated the answer (AD, RFC 4035
	// section 3.2.3). It is worth as much as the way to that server.
	Authenticated bool
	// Server answered, as host:port; "" when none did.
	Server string
	// Err says what went wrong, for people, when the outcome is not conclusive.
	Err error
}
