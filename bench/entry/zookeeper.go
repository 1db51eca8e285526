package entry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

func init() {
	register(Spec{
		Name: "zookeeper", Kind: ZooKeeper, Module: "github.com/go-zookeeper/zk",
		Note:   "the recipe of its documentation: ephemeral sequential nodes, each waits for the one before it; for readers that of shared locks",
		Shapes: []string{Uncontended, Shared, Separate, InOrder, ReadWrite, Together},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			c, events, err := zk.Connect(env.Members, max(env.Lease, 4*time.Second), zk.WithLogInfo(false), zk.WithLogger(silent{}))
			if err != nil {
				return nil, err
			}
			for {
				select {
				case e := <-events:
					if e.State == zk.StateHasSession {
						go func() { // ends with the connection
							for range events {
							}
						}()
						return &zooKeeper{c, env.readers()}, nil
					}
				case <-ctx.Done():
					c.Close()
					return nil, ctx.Err()
				}
			}
		},
	})
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zooKeeper struct {
	conn   *zk.Conn
	shared bool // there are readers
}

func (l *zooKeeper) Close() { l.conn.Close() }

var open = zk.WorldACL(zk.PermAll)

// Nodes of readers have a name of their own.
const zooKeeperRead, zooKeeperLock = "/read-", "/lock-"

// node makes the caller's node below that of the name, which is removed when nobody wants the name.
func (l *zooKeeper) node(parent, kind string) (string, error) {
	for {
		path, err := l.conn.CreateProtectedEphemeralSequential(parent+kind, nil, open)
		if !errors.Is(err, zk.ErrNoNode) {
			return path, err
		}
		if _, err := l.conn.Create(parent, nil, 0, open); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}

// sequence is the number at the end; names begin with something random.
func sequence(node string) string { return node[strings.LastIndexByte(node, '-')+1:] }

func (l *zooKeeper) Acquire(ctx context.Context, name string) (Held, error) {
	return l.acquire(ctx, name, zooKeeperLock)
}

// AcquireShared waits for the last writer before it alone.
func (l *zooKeeper) AcquireShared(ctx context.Context, name string) (Held, error) {
	return l.acquire(ctx, name, zooKeeperRead)
}

func (l *zooKeeper) acquire(ctx context.Context, name, kind string) (Held, error) {
	h := &zooKeeperHeld{l: l, parent: "/" + name}
	var err error
	if h.path, err = l.node(h.parent, kind); err != nil {
		return nil, err
	}
	for {
		children, _, err := l.conn.Children(h.parent)
		if err != nil {
			return nil, errors.Join(err, h.Release(ctx))
		}
		slices.SortFunc(children, func(a, b string) int { return strings.Compare(sequence(a), sequence(b)) })
		before := slices.IndexFunc(children, func(c string) bool { return sequence(c) == sequence(h.path) })
		if before < 0 {
			return nil, errors.New("the session is over")
		}
		before--
		for kind == zooKeeperRead && before >= 0 && strings.Contains(children[before], zooKeeperRead[1:]) {
			before--
		}
		if before < 0 {
			return h, nil
		}
		exists, _, gone, err := l.conn.ExistsW(h.parent + "/" + children[before])
		if err != nil {
			return nil, errors.Join(err, h.Release(ctx))
		}
		if !exists {
			continue
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), h.Release(ctx))
		}
	}
}

type zooKeeperHeld struct {
	l            *zooKeeper
	parent, path string
}

func (h *zooKeeperHeld) Release(context.Context) error {
	if err := h.l.conn.Delete(h.path, -1); err != nil {
		return err
	}
	if err := h.l.conn.Delete(h.parent, -1); err != nil && !errors.Is(err, zk.ErrNotEmpty) && !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}
