package config

import (
	"log/slog"
	"time"

	"liqo.io/agent/api"
	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
)

// Config says who is told what people say, and who knows what their objects are to show.
// Its functions are called on several goroutines.
type Config struct {
	// SearchDomains is told the SearchDomains, the oldest first and without those
	// that are being deleted: once they are known (nil when there are none), and
	// whenever one is made, one goes or the spec of one changes. Each connection
	// begins with telling them again. It is called on one goroutine at a time, keeps
	// what it is given and must not block. The field may be nil.
	SearchDomains func([]api.SearchDomain)
	// SearchDomainStatus returns what the status of the SearchDomain with that name
	// is to say; false leaves it as it is. It is asked about an object only after
	// SearchDomains was told of it as it is: what is known of another one that had
	// the name before is not to be returned. Times of what did not change are carried
	// over, so they may be those of the call. It must not block. The field may be nil:
	// then no status is written.
	SearchDomainStatus func(name string) (api.SearchDomainStatus, bool)
	// ClusterConfig is told the spec of the ClusterConfig that counts (see
	// api.ClusterConfigName): once it is known, and whenever it changes; nil when
	// there is none, or when it is being deleted. Each connection begins with telling
	// it again; while there is no connection, nothing is told. It is called on one
	// goroutine at a time, keeps what it is given and must not block. The field may be
	// nil: then no ClusterConfig is made.
	ClusterConfig func(*api.ClusterConfigSpec)

	// Health returns what the condition Healthy of the ClusterConfig is to say; false
	// leaves it as it is. Settings.Changed says that the answer is another. It must not
	// block. The field may be nil: then no condition is written.
	Health func() (Health, bool)
	// Effective returns which settings hold, for the status of the ClusterConfig.
	// Settings.Changed says that the answer is another. It must not block. The field may be
	// nil: then nothing is said about it, as without Health.
	Effective func() api.EffectiveConfig
}

// Connection is what objects are followed and written with.
type Connection struct {
	*conn.Session
	Client *kube.Client
	// CheckIfMissing has the custom resources looked at when err says that the API server
	// does not serve what was asked for. It must not block.
	CheckIfMissing func(err error)
	Logger         *slog.Logger
	// Now is the clock.
	Now func() time.Time
}
