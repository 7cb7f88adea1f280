package peering

import (
	"cmp"
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"liqo.io/agent/kube/conn"
	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
)

// checkIfMissing has the custom resources looked at when err says that the API
// server does not serve what was asked for.
func (s *session) checkIfMissing(err error) {
	if apierrors.IsNotFound(err) {
		wake(s.check)
	}
}

// keep keeps the custom resources, the namespace and the ConfigMap in place
// until ctx ends: at once, then at intervals, and whenever they seem to be gone.
func (s *session) keep(ctx context.Context, every time.Duration) {
	var told peer.ClusterID // the other cluster ID that was reported
	for failures := 0; ; {
		err := s.ensure(ctx, &told)
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, errBadConfigMap):
			// Only a person can correct it.
			s.WarnOnce("ConfigMap", "the ConfigMap with the cluster ID holds none and is left alone", err)
		case err != nil:
			s.NoteError(err)
			s.cfg.Logger.Debug("cannot install the agent's objects, trying again", "error", err)
			if failures++; failures == patientRetries {
				s.WarnOnce("own objects", "cannot install the agent's objects, trying again", err)
			}
			if work.Sleep(ctx, conn.Backoff.Pause(failures)) != nil {
				return
			}
			continue
		}
		failures = 0
		// A burst of failed requests asks for one look, not for one each.
		if work.Sleep(ctx, conn.Backoff.First) != nil {
			return
		}
		timer := time.NewTimer(wait.Jitter(every/2, 1))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.check:
		}
		timer.Stop()
	}
}

// ensure puts in place what the agent needs in the API server. told is the
// other cluster ID that was reported last.
func (s *session) ensure(ctx context.Context, told *peer.ClusterID) error {
	if err := ensureCRDs(ctx, s.client); err != nil {
		if ctx.Err() == nil {
			s.Placed(nil, err)
		}
		return err
	}
	var hook error
	if webhook := s.cfg.Webhook(); webhook != nil {
		hook = ensureWebhook(ctx, s.client, webhook)
	}
	others := s.publish(ctx, told)
	if ctx.Err() == nil {
		s.Placed(hook, others)
	}
	return cmp.Or(hook, others)
}

// publish has the ConfigMap say which cluster this is.
func (s *session) publish(ctx context.Context, told *peer.ClusterID) error {
	own := s.cfg.Identity().ClusterID
	if own == "" {
		return nil
	}
	other, err := ensureIdentity(ctx, s.client, s.cfg.Namespace, own)
	if err != nil {
		return err
	}
	if other != "" && other != *told {
		s.cfg.OnClusterID(other)
	}
	*told = other
	return nil
}
