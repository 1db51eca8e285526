package entry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// PostgresTable is the table in which the unique-row lock keeps its rows.
const PostgresTable = `CREATE TABLE IF NOT EXISTS locks (name text PRIMARY KEY, owner text NOT NULL, until timestamptz NOT NULL)`

func init() {
	const module = "github.com/jackc/pgx/v5"
	register(Spec{
		Name: "postgres-row", Kind: Postgres, Module: module, Members: []int{1},
		Note:   "a row per lock with an end, INSERT … ON CONFLICT, polls every 10 ms; commits are durable, as PostgreSQL's are by default",
		Shapes: []string{Uncontended, Shared, Separate, Renewed},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			pool, err := openPool(ctx, env, 16)
			if err == nil {
				_, err = pool.Exec(ctx, PostgresTable)
			}
			if err != nil {
				return nil, err
			}
			return &postgresRow{pool: pool, lease: env.Lease, pfx: strconv.FormatUint(rand.Uint64(), 36)}, nil
		},
	})
	register(Spec{
		Name: "postgres-advisory", Kind: Postgres, Module: module, Members: []int{1},
		Note:   "pg_advisory_lock: bound to a session, so a connection per held lock; no lease and no token",
		Shapes: []string{Uncontended, Shared, Separate},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			pool, err := openPool(ctx, env, 64)
			if err != nil {
				return nil, err
			}
			return &postgresAdvisory{pool}, nil
		},
	})
}

func openPool(ctx context.Context, env Env, conns int32) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", env.Members[0]))
	if err != nil {
		return nil, err
	}
	c.MaxConns = conns
	if env.Shape == Separate || env.Shape == Permits {
		c.MaxConns = 2
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err == nil {
		err = pool.Ping(ctx)
	}
	return pool, err
}

type postgresRow struct {
	pool  *pgxpool.Pool
	lease time.Duration
	pfx   string
	seq   atomic.Uint64
}

func (l *postgresRow) Close() { l.pool.Close() }

func (l *postgresRow) Acquire(ctx context.Context, name string) (Held, error) {
	h := &postgresRowHeld{l, name, l.pfx + ":" + strconv.FormatUint(l.seq.Add(1), 36)}
	for {
		tag, err := l.pool.Exec(ctx, `INSERT INTO locks VALUES ($1, $2, now() + $3) ON CONFLICT (name) DO UPDATE
			SET owner = excluded.owner, until = excluded.until WHERE locks.until < now()`, name, h.owner, l.lease)
		if err != nil {
			return nil, errors.Join(err, h.undo())
		}
		if tag.RowsAffected() == 1 {
			return h, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

type postgresRowHeld struct {
	l           *postgresRow
	name, owner string
}

// undo frees what a cancelled call may have taken.
func (h *postgresRowHeld) undo() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := h.Release(ctx); err != errNotHeld {
		return err
	}
	return nil
}

func (h *postgresRowHeld) Release(ctx context.Context) error {
	tag, err := h.l.pool.Exec(ctx, `DELETE FROM locks WHERE name = $1 AND owner = $2`, h.name, h.owner)
	if err == nil && tag.RowsAffected() == 0 {
		err = errNotHeld
	}
	return err
}

func (h *postgresRowHeld) Extend(ctx context.Context) error {
	tag, err := h.l.pool.Exec(ctx, `UPDATE locks SET until = now() + $3 WHERE name = $1 AND owner = $2`, h.name, h.owner, h.l.lease)
	if err == nil && tag.RowsAffected() == 0 {
		err = errNotHeld
	}
	return err
}

type postgresAdvisory struct{ pool *pgxpool.Pool }

func (l *postgresAdvisory) Close() { l.pool.Close() }

func (l *postgresAdvisory) Acquire(ctx context.Context, name string) (Held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended($1, 0))`, name); err != nil {
		// The connection is closed by now, and with it what the server may have granted.
		conn.Release()
		return nil, err
	}
	return postgresAdvisoryHeld{conn, name}, nil
}

type postgresAdvisoryHeld struct {
	conn *pgxpool.Conn
	name string
}

func (h postgresAdvisoryHeld) Release(ctx context.Context) error {
	defer h.conn.Release()
	var ok bool
	err := h.conn.QueryRow(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, h.name).Scan(&ok)
	if err == nil && !ok || errors.Is(err, pgx.ErrNoRows) {
		err = errNotHeld
	}
	return err
}
