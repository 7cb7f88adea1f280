package conn

import (
	"context"
	"errors"
	"sync"
	"time"

	"liqo.io/agent/kube/work"
)

// Backoff is the pause between attempts to connect, and of what is tried again all the
// time while there is a connection.
var Backoff = work.Backoff{First: 200 * time.Millisecond, Max: 10 * time.Second}

// Run works until ctx ends. It waits for a kubeconfig and for an API server as long as
// it takes, and starts over when one of them is replaced or fails. connection is called
// for each attempt; it returns when its ctx has ended, with the cause of that, or with
// why there cannot be a connection now.
func (l *Link) Run(ctx context.Context, connection func(ctx context.Context, s *Session) error) {
	for ctx.Err() == nil {
		if found, err := l.await(ctx); err == nil {
			l.use(ctx, found, connection)
		}
	}
}

// use works with one kubeconfig until it is replaced or ctx ends.
func (l *Link) use(ctx context.Context, found kubeconfig, connection func(context.Context, *Session) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	watching.Go(func() { cancel(l.replaced(ctx, found)) })

	l.trying(found.config.Host, found.name())
	l.another()
	for failures := 0; ; {
		s, err := l.Open(found.config)
		if err == nil {
			err = connection(ctx, s)
			s.Passage.close()
		}
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errLost) || errors.Is(err, ErrRights) {
			failures = 0
		} else {
			l.waiting(err)
		}
		failures++
		if work.Sleep(ctx, Backoff.Pause(failures)) != nil {
			return
		}
	}
}

// await returns the kubeconfig as soon as there is a usable one, however long
// that takes. Its error says that ctx ended. One that is of no use is read again
// although it did not change: others change who may read it, and the files that
// it names.
func (l *Link) await(ctx context.Context) (kubeconfig, error) {
	for {
		found, err := l.locator.load(l.kubeconfig())
		if err == nil {
			return found, nil
		}
		l.waiting(err)
		if err := work.Sleep(ctx, l.pollEvery); err != nil {
			return kubeconfig{}, err
		}
	}
}

// replaced blocks until another kubeconfig than current is to be used. Files
// that are half written, or gone, or written again with the same contents, are
// no reason to give up a connection that works. What cannot be used is read again,
// as by await.
func (l *Link) replaced(ctx context.Context, current kubeconfig) error {
	seen := current.stamp
	for {
		if err := work.Sleep(ctx, l.pollEvery); err != nil {
			return err
		}
		found, err := l.locator.find(l.kubeconfig())
		if errors.Is(err, ErrSwitchedOff) {
			return errKubeconfigReplaced
		}
		if err != nil || found.stamp == seen {
			continue
		}
		read, err := found.read()
		if err != nil {
			continue
		}
		seen = found.stamp
		if read.digest != current.digest {
			return errKubeconfigReplaced
		}
	}
}
