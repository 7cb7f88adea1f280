package host

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"liqo.io/agent/kube/work"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/workload"
)

// reclaim gives the labels back to namespaces of a consumer that have lost them:
// without, they would be nobody's, and what runs there would stay when the consumer
// goes. That a namespace is the consumer's is what the quota in it says, which the
// agent has made. One that says to be another consumer's is left alone.
func (s *session) reclaim(ctx context.Context, id peer.ClusterID, settings Settings) (again time.Duration, err error) {
	var errs []error
	for _, quota := range s.quotas.All() {
		if quota.Name != QuotaName || owner(quota) != id || quota.DeletionTimestamp != nil {
			continue
		}
		guest := s.namespaces.Get("", quota.Namespace)
		if guest != nil && (owner(guest) != id || guest.Labels[workload.LabelOriginNamespace] != "" || quota.Labels[workload.LabelOriginNamespace] == "") {
			continue
		}
		wait, err := s.label(ctx, id, quota, settings)
		again = work.Sooner(again, wait)
		errs = append(errs, err)
	}
	return again, errors.Join(errs...)
}

// label labels the namespace of a quota as the consumer's, if it can be that.
func (s *session) label(ctx context.Context, id peer.ClusterID, quota *corev1.ResourceQuota, settings Settings) (time.Duration, error) {
	found := &corev1.Namespace{}
	if err := s.client.Get(ctx, namespacesPath+quota.Namespace, found); err != nil {
		return 0, ifThere(err)
	}
	if of := origin(found); found.DeletionTimestamp != nil || of != "" && of != id || !madeFor(quota, found) {
		return 0, nil
	}
	wanted := namespaceFor(found.Name, id, originOf(found, quota), settings)
	wanted.UID = found.UID
	wait, err := ensure(ctx, s, s.namespaces, namespacesPath+found.Name, "", wanted, func(now, _ *corev1.Namespace) bool {
		return covers(now.Labels, wanted.Labels)
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // another one by now, or none
	}
	if wait == 0 && err == nil {
		s.host.cfg.Logger.Info("a namespace of a consumer had lost its labels; they are restored", "peer", id, "namespace", found.Name)
	}
	return wait, err
}

// madeFor reports whether the agent made a quota for that namespace: one that somebody copied
// says nothing about another. Those of older agents do not name it; the names that the
// agent gives to namespaces have the cluster ID in them.
func madeFor(quota *corev1.ResourceQuota, guest *corev1.Namespace) bool {
	if uid, named := quota.Annotations[annotationNamespace]; named {
		return uid == string(guest.UID)
	}
	return strings.Contains(guest.Name, string(owner(quota)))
}

// originOf returns the consumer's namespace that a guest namespace stands for, as its
// quota says, or it itself where quotas did not say it yet.
func originOf(guest *corev1.Namespace, quota *corev1.ResourceQuota) string {
	for _, o := range []metav1.Object{quota, guest} {
		if name := o.GetLabels()[workload.LabelOriginNamespace]; name != "" {
			return name
		}
	}
	return ""
}
