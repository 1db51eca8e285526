package entry

import (
	"context"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// Campaign uses a session per leader, as for the mutex.
func (l *etcdLocker) Campaign(ctx context.Context, name, value string) (Held, error) {
	s, err := l.session()
	if err != nil {
		return nil, err
	}
	e := concurrency.NewElection(s, name)
	if err := e.Campaign(ctx, value); err != nil {
		// A campaign that is cancelled may leave the key of its candidate (etcd-io/etcd#21128), which would
		// lead in the end. With the session it goes.
		_ = s.Close()
		return nil, err
	}
	return etcdLeader{l, s, e}, nil
}

func (l *etcdLocker) Observe(ctx context.Context, name string, told func(value string)) error {
	s, err := l.session()
	if err != nil {
		return err
	}
	defer l.put(s)
	for r := range concurrency.NewElection(s, name).Observe(ctx) {
		if len(r.Kvs) > 0 {
			told(string(r.Kvs[0].Value))
		}
	}
	return ctx.Err()
}

type etcdLeader struct {
	l *etcdLocker
	s *concurrency.Session
	e *concurrency.Election
}

func (h etcdLeader) Release(ctx context.Context) error {
	defer h.l.put(h.s)
	return h.e.Resign(ctx)
}
