package outside

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// What the blocks name and do not declare: the program of their reader.
var (
	urls                       []string
	address                    string
	errTooMany                 = errors.New("too many")
	mutex                      *redlock.Mutex
	prices                     *redlock.RWMutex
	db                         *sql.DB
	rs                         *redsync.Redsync
	kv                         clientv3.KV
	fence, token20, key, value string
)

func pay(context.Context, *redlock.Lease) error        { return nil }
func lead(ctx context.Context, _ *redlock.Lease) error { return schedule(ctx, 0) }
func schedule(ctx context.Context, _ uint64) error     { <-ctx.Done(); return nil }
func download(context.Context, int) error              { return nil }
func transfer(_ context.Context, _, _ uint64) error    { return nil }
func token(context.Context, string) (string, error)    { return "", nil }
func connect([]byte, uint64, bool)                     {}
func work(...any) error                                { return nil }
func report(context.Context, uint64) error             { return nil }
func update(context.Context, uint64) error             { return nil }
func book(context.Context, uint64) error               { return nil }

type block func(*testing.T, context.Context, *redlocktest.Deployment, *redlock.Client) error

func TestBlocks(t *testing.T) {
	if len(all) < 12 {
		t.Error("blocks are not found: ", all)
	}
	for where, run := range all {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := redlocktest.New(t, 3)
				mutex, prices = d.Client.Mutex("invoice:42"), d.Client.RWMutex("prices")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := run(t, ctx, d, d.Client)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, redlock.ErrNoQuorum) {
					t.Error(err)
				}
			})
		})
	}
}
