package access

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
)

// rightsEvery is how often rights that are to change are asked for.
const rightsEvery = 3 * time.Second

// Rights are what the agent's user may do, as far as something depends on it.
type Rights struct {
	client    *kube.Client
	namespace string
	// Former: they are those of an older version, see api.PeerUsers.
	Former bool
}

// AskRights asks the API server as whom it lets peers be. An agent with the rights of an
// older version keeps the peers as they were, until somebody gives it those of this one.
// Close ends the Rights.
func AskRights(ctx context.Context, session *conn.Session, namespace string, logger *slog.Logger) (*Rights, error) {
	client, err := kube.New(session.Unobserved()) // a question about rights is no write, though it is a POST
	if err != nil {
		return nil, fmt.Errorf("rights of the agent's user: %w", err)
	}
	r := &Rights{client: client, namespace: namespace}
	today, err := r.ask(ctx)
	if err != nil {
		client.Close()
		return nil, err
	}
	if r.Former = !today; r.Former {
		logger.Warn("the agent's user has the rights of an older version, by which it could pass for others; "+
			"peers go on as before until you run `sudo liqo-agent rbac --apply`", "namespace", namespace)
	}
	return r, nil
}

// ask reports whether peers can be service accounts.
func (r *Rights) ask(ctx context.Context) (bool, error) {
	may, err := r.client.May(ctx, kube.Access{Namespace: r.namespace, Verb: "impersonate", Resource: "serviceaccounts"})
	if err != nil {
		return false, fmt.Errorf("rights of the agent's user: %w", err)
	}
	return may, nil
}

// Await ends the connection once the rights are those of this version: the next one
// goes by them.
func (r *Rights) Await(ctx context.Context, end context.CancelCauseFunc) {
	for r.Former && work.Sleep(ctx, wait.Jitter(rightsEvery/2, 1)) == nil {
		if today, err := r.ask(ctx); today && err == nil {
			end(conn.ErrRights)
			return
		}
	}
}

// Close closes the connections that are not in use.
func (r *Rights) Close() { r.client.Close() }
