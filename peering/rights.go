package peering

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"liqo.io/agent/kube"
	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
)

// rightsEvery is how often rights that are to change are asked for.
const rightsEvery = 3 * time.Second

// rights are what the agent's user may do, as far as something depends on it.
type rights struct {
	*kube.Client
	namespace string
	former    bool // those of an older version, see api.PeerUsers
}

// askRights asks the API server as whom it lets peers be. An agent with the rights of an
// older version keeps the peers as they were, until somebody gives it those of this one.
func (s *session) askRights(ctx context.Context) (*rights, error) {
	client, err := kube.New(s.Unobserved()) // a question about rights is no write, though it is a POST
	if err != nil {
		return nil, fmt.Errorf("rights of the agent's user: %w", err)
	}
	r := &rights{Client: client, namespace: s.users.Namespace}
	today, err := r.ask(ctx)
	if err != nil {
		client.Close()
		return nil, err
	}
	if r.former = !today; r.former {
		s.cfg.Logger.Warn("the agent's user has the rights of an older version, by which it could pass for others; "+
			"peers go on as before until you run `sudo liqo-agent rbac --apply`", "namespace", r.namespace)
	}
	return r, nil
}

// ask reports whether peers can be service accounts.
func (r *rights) ask(ctx context.Context) (bool, error) {
	may, err := r.May(ctx, kube.Access{Namespace: r.namespace, Verb: "impersonate", Resource: "serviceaccounts"})
	if err != nil {
		return false, fmt.Errorf("rights of the agent's user: %w", err)
	}
	return may, nil
}

// await ends the connection once the rights are those of this version: the next one
// goes by them.
func (r *rights) await(ctx context.Context, end context.CancelCauseFunc) {
	for r.former && work.Sleep(ctx, wait.Jitter(rightsEvery/2, 1)) == nil {
		if today, err := r.ask(ctx); today && err == nil {
			end(conn.ErrRights)
			return
		}
	}
}
