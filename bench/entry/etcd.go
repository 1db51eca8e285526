package entry

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func init() {
	register(Spec{
		Name: "etcd", Kind: Etcd, Module: "go.etcd.io/etcd/client/v3",
		Note:   "concurrency.Mutex, a session per lock that is held, because locks of one session do not exclude each other; for readers the RWMutex of its recipes, whose callers cannot give up: keys of those that the slice cuts short go later; for leaders its Election",
		Shapes: []string{Uncontended, Shared, Separate, InOrder, ReadWrite, Together, Leading},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			c, err := clientv3.New(clientv3.Config{Endpoints: env.Members, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
			if err != nil {
				return nil, err
			}
			l := &etcdLocker{client: c, ttl: max(1, int(env.Lease.Seconds()))}
			if env.readers() {
				return etcdReadWrite{l}, nil
			}
			return l, nil
		},
	})
}

type etcdLocker struct {
	client *clientv3.Client
	ttl    int

	mu   sync.Mutex // guards the sessions that hold nothing
	free []*concurrency.Session
}

func (l *etcdLocker) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, s := range l.free {
		_, _ = l.client.Revoke(ctx, s.Lease())
		s.Orphan()
	}
	_ = l.client.Close()
}

func (l *etcdLocker) session() (*concurrency.Session, error) {
	l.mu.Lock()
	if n := len(l.free); n > 0 {
		s := l.free[n-1]
		l.free = l.free[:n-1]
		l.mu.Unlock()
		return s, nil
	}
	l.mu.Unlock()
	return concurrency.NewSession(l.client, concurrency.WithTTL(l.ttl))
}

func (l *etcdLocker) put(s *concurrency.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, s)
}

func (l *etcdLocker) Acquire(ctx context.Context, name string) (Held, error) {
	s, err := l.session()
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		l.put(s)
		return nil, err
	}
	return etcdHeld{l, s, m}, nil
}

type etcdHeld struct {
	l *etcdLocker
	s *concurrency.Session
	m *concurrency.Mutex
}

func (h etcdHeld) Release(ctx context.Context) error {
	defer h.l.put(h.s)
	return h.m.Unlock(ctx)
}
