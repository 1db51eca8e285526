package entry

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/jackc/pgx/v5/pgxpool"
)

func init() {
	register(Spec{
		Name: "postgres-semaphore", Kind: Postgres, Module: "github.com/jackc/pgx/v5", Members: []int{1},
		Note:   "an advisory lock per permit: the first that is free from a random one on, in one query; if none is, it waits for a random one. A connection per permit; no lease and no token",
		Shapes: []string{Room, Permits},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			pool, err := openPool(ctx, env, 4)
			if err != nil {
				return nil, err
			}
			return &postgresPermits{pool}, nil
		},
	})
}

type postgresPermits struct{ pool *pgxpool.Pool }

func (l *postgresPermits) Close() { l.pool.Close() }

// Acquire takes the only permit of a name.
func (l *postgresPermits) Acquire(ctx context.Context, name string) (Held, error) {
	return l.AcquirePermit(ctx, name, 1)
}

func (l *postgresPermits) AcquirePermit(ctx context.Context, name string, limit int) (Held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	slot, first := -1, rand.IntN(limit)
	err = conn.QueryRow(ctx, `SELECT coalesce((SELECT (i + $3) % $2 FROM generate_series(0, $2 - 1) i
		WHERE pg_try_advisory_lock(hashtext($1), (i + $3) % $2) LIMIT 1), -1)`, name, limit, first).Scan(&slot)
	if err == nil && slot < 0 {
		slot = first
		_, err = conn.Exec(ctx, `SELECT pg_advisory_lock(hashtext($1), $2)`, name, slot)
	}
	if err != nil {
		// The connection is closed by now, and with it what the server may have granted.
		conn.Release()
		return nil, err
	}
	return postgresPermit{conn, name, slot, 1}, nil
}

// Fill uses one connection for all: so a server that has 400 holds more.
func (l *postgresPermits) Fill(ctx context.Context, name string, _, n int) (Held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	var got int
	err = conn.QueryRow(ctx, `SELECT count(*) FROM generate_series(0, $2 - 1) i WHERE pg_try_advisory_lock(hashtext($1), i)`, name, n).Scan(&got)
	if err == nil && got < n {
		err = errNotHeld
	}
	h := postgresPermit{conn, name, 0, n}
	if err != nil {
		return nil, errors.Join(err, h.Release(ctx))
	}
	return h, nil
}

// postgresPermit is the permits from first on.
type postgresPermit struct {
	conn     *pgxpool.Conn
	name     string
	first, n int
}

func (h postgresPermit) Slot() int { return h.first }

func (h postgresPermit) Release(ctx context.Context) error {
	defer h.conn.Release()
	var freed int
	err := h.conn.QueryRow(ctx, `SELECT count(*) FROM generate_series($2::int, $3 - 1) i WHERE pg_advisory_unlock(hashtext($1), i)`, h.name, h.first, h.first+h.n).Scan(&freed)
	if err == nil && freed < h.n {
		err = errNotHeld
	}
	return err
}
