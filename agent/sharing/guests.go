package sharing

import (
	"context"
	"errors"

	"liqo.io/agent/endpoint/wire"
	"liqo.io/agent/peer"
	"liqo.io/agent/sharing/host"
)

// Namespace implements endpoint.Guests.
func (s *Sharing) Namespace(ctx context.Context, id peer.ClusterID, origin string) (string, error) {
	name, err := s.hosts.Namespace(ctx, id, origin)
	return name, refused(err)
}

// Release implements endpoint.Guests.
func (s *Sharing) Release(ctx context.Context, id peer.ClusterID, origin string) error {
	return refused(s.hosts.Release(ctx, id, origin))
}

// Owns implements endpoint.Guests.
func (s *Sharing) Owns(id peer.ClusterID, namespace string) error {
	return refused(s.hosts.Owns(id, namespace))
}

// ConsumerOf returns whose guests are in a namespace, "" for nobody's; known is false while that is not known.
func (s *Sharing) ConsumerOf(namespace string) (id peer.ClusterID, known bool) {
	return s.hosts.Consumer(namespace)
}

// Namespaces returns the guest namespaces of a consumer, by those of the consumer that they
// stand for.
func (s *Sharing) Namespaces(id peer.ClusterID) map[string]string { return s.hosts.Namespaces(id) }

// Pod implements endpoint.Guests.
func (s *Sharing) Pod(ctx context.Context, id peer.ClusterID, namespace string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := s.hosts.Pod(ctx, id, namespace, body)
	return clean, done, refused(err)
}

// Named implements endpoint.Guests.
func (s *Sharing) Named(pod []byte) (map[string][]string, error) {
	return host.Named(pod)
}

// PodPatch implements endpoint.Guests.
func (s *Sharing) PodPatch(id peer.ClusterID, namespace, name string, body []byte) ([]byte, string, error) {
	clean, contentType, err := s.hosts.PodPatch(id, namespace, name, body)
	return clean, contentType, refused(err)
}

// Ephemeral implements endpoint.Guests.
func (s *Sharing) Ephemeral(ctx context.Context, id peer.ClusterID, namespace, name string, body []byte) ([]byte, func([]byte), error) {
	clean, done, err := s.hosts.Ephemeral(ctx, id, namespace, name, body)
	return clean, done, refused(err)
}

// Object implements endpoint.Guests.
func (s *Sharing) Object(id peer.ClusterID, namespace, resource, name string, body []byte) ([]byte, error) {
	clean, err := s.hosts.Object(id, namespace, resource, name, body)
	return clean, refused(err)
}

// refused converts an error of package host to one of package endpoint.
func refused(err error) error {
	var no *host.Refused
	if !errors.As(err, &no) {
		return err
	}
	out := &wire.Refused{Reason: no.Reason, Message: no.Message}
	if no.Reason == host.ReasonNotReady || no.Reason == host.ReasonTerminating {
		out.Retry = no.Retry // the reason is temporary
	}
	return out
}
