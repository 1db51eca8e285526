//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencepgx"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

type rows struct {
	*database
	db    *sql.DB
	guard *fencesql.Guard
}

func (r rows) Get(ctx context.Context, resource string) (value string, err error) {
	err = r.db.QueryRowContext(ctx, r.get(), []byte(resource)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (r rows) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return r.guard.Tx(ctx, nil, resource, token, func(tx *sql.Tx) error {
		if entered != nil {
			entered()
		}
		_, err := tx.ExecContext(ctx, r.put(), []byte(resource), value)
		return err
	})
}

func (r rows) Overwrite(ctx context.Context, resource, value string) error {
	for {
		_, err := r.db.ExecContext(ctx, r.put(), []byte(resource), value)
		if err == nil || r.dialect != fencesql.SQLite && r.dialect != fencesql.MySQL || ctx.Err() != nil {
			return err
		}
	}
}

func (d *database) fixture(t *testing.T) fencetest.Fixture {
	db := d.connect(t)
	g := d.guard(t, db)
	for _, table := range []string{"redquorum_fence", "data"} {
		require.NoError(t, rt.Err(db.ExecContext(t.Context(), "DELETE FROM "+table)))
	}
	return d.over(t, db, g)
}

func (d *database) over(t *testing.T, db *sql.DB, g *fencesql.Guard) fencetest.Fixture {
	again := func() (fencetest.Fixture, error) {
		if d.restart != nil {
			if err := d.restart(); err != nil {
				return fencetest.Fixture{}, err
			}
		}
		db := d.connect(t)
		g, err := fencesql.New(db, d.dialect)
		return d.over(t, db, g), err
	}
	f := fencetest.Fixture{
		Guard: g, Storage: rows{d, db, g}, Endings: rows{d, db, g}.endings(),
		Reopen: func() (fence.Guard, error) { f, err := again(); return f.Guard, err },
	}
	if d.restart != nil {
		f.Crash = again
	}
	return f
}

func TestDatabasesAreGuards(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		fencetest.Run(t, d.fixture)
		fencetest.RunSet(t, d.fixture, 30)
	})
}

// A holder that stops inside a transaction is ended by the server, and so is its commit. Until then the
// claim waits. SQLite cannot end a transaction of another process.
func TestHolderThatStopsInsideATransactionBlocksForAWhile(t *testing.T) {
	t.Parallel()
	over := func(start func(testing.TB) *database) func(t *testing.T) fencetest.Fixture {
		return func(t *testing.T) fencetest.Fixture {
			d := start(t)
			db := d.connect(t)
			g := d.guard(t, db, fencesql.HoldTimeout(time.Second))
			return fencetest.Fixture{Guard: g, Storage: rows{d, db, g}}
		}
	}
	for name, open := range map[string]func(t *testing.T) fencetest.Fixture{
		"PostgreSQL": over(postgres), "PgBouncer": over(pgbouncer), "MariaDB": over(mariadb), "MySQL": over(mysql8), "pgx": func(t *testing.T) fencetest.Fixture {
			d := postgres(t)
			pool := d.pgxFixture(t).Storage.(pgxRows).pool
			g := rt.Must(fencepgx.New(pool, fencepgx.HoldTimeout(time.Second)))(t)
			return fencetest.Fixture{Guard: g, Storage: pgxRows{d, pool, g}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, ctx := open(t), t.Context()
			require.NoError(t, f.Storage.Put(ctx, "r", 33, "before", nil))
			err := f.Storage.Put(ctx, "r", 33, "late", func() {
				begun := time.Now()
				require.NoError(t, f.Guard.Check(ctx, "r", 34), "the claim returns although 33 does not go on")
				assert.GreaterOrEqual(t, time.Since(begun), 900*time.Millisecond)
				assert.Less(t, time.Since(begun), 30*time.Second, "HoldTimeout is one second")
			})
			if step := stepOf(t, err); name == "pgx" {
				assert.Equal(t, fence.StepWrite, step)
			}
			assert.Equal(t, "before", rt.Must(f.Storage.Get(ctx, "r"))(t))
			assert.ErrorIs(t, f.Storage.Put(ctx, "r", 33, "late", nil), fence.ErrStale)
		})
	}
}

// A holder that stops while the server sends it rows is not idle. MySQL bounds that, too. PostgreSQL lets the claim wait
// until the holder goes on.
func TestHolderThatStopsWhileItReads(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		rows10MB := ""
		switch d.dialect {
		case fencesql.PostgreSQL:
			rows10MB = "SELECT repeat('x', 1000) FROM generate_series(1, 10000)"
		case fencesql.MySQL:
			rows10MB = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT repeat('x', 1000) FROM n AS a, n AS b"
		default:
			return // in SQLite nobody ends a transaction of another process
		}
		db := d.connect(t)
		g := d.guard(t, db, fencesql.HoldTimeout(time.Second))
		ctx := t.Context()
		require.NoError(t, g.Check(ctx, "r", 33))
		err := g.Tx(ctx, nil, "r", 33, func(tx *sql.Tx) error {
			if d.dialect == fencesql.MySQL { // a minute, unless somebody says otherwise
				var seconds int
				require.NoError(t, tx.QueryRowContext(ctx, "SELECT @@session.net_write_timeout").Scan(&seconds))
				require.Equal(t, 1, seconds)
			}
			list, err := tx.QueryContext(ctx, rows10MB)
			if err != nil {
				return err
			}
			defer list.Close()
			require.True(t, list.Next())
			if d.dialect == fencesql.MySQL {
				require.NoError(t, g.Check(ctx, "r", 34))
			} else {
				short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
				defer cancel()
				assert.ErrorIs(t, g.Check(short, "r", 34), context.DeadlineExceeded)
			}
			for list.Next() {
			}
			return errors.Join(list.Err(), list.Close())
		})
		if d.dialect == fencesql.MySQL {
			var step *fence.StepError
			assert.ErrorAs(t, err, &step, "33 commits after 34 was claimed")
		} else {
			assert.NoError(t, err)
		}
		assert.NoError(t, g.Check(ctx, "r", 34))
	})
}

func TestTxClaimsRepeatsAndRollsBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, g, f, ctx := d.ready(t)
		require.NoError(t, g.Verify(ctx))
		require.NoError(t, f.Put(ctx, "r", 5, "five", nil), "nobody has claimed")
		require.NoError(t, f.Put(ctx, "r", 7, "seven", nil))
		require.ErrorIs(t, f.Put(ctx, "r", 6, "six", nil), fence.ErrStale)

		broken := errors.New("broken")
		err := g.Tx(ctx, nil, "r", 8, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, d.put(), []byte("r"), "half")
			return errors.Join(err, broken)
		})
		step := rt.As[*fence.StepError](t, err)
		assert.Equal(t, fence.StepWrite, step.Step)
		assert.ErrorIs(t, err, broken)
		assert.PanicsWithValue(t, broken, func() {
			_ = g.Tx(ctx, nil, "r", 8, func(tx *sql.Tx) error {
				_, _ = tx.ExecContext(ctx, d.put(), []byte("r"), "half")
				panic(broken)
			})
		})
		assert.Equal(t, "seven", rt.Must(f.Get(ctx, "r"))(t))
		assert.ErrorIs(t, g.Check(ctx, "r", 7), fence.ErrStale, "8 was claimed")

		// A table that forgets, which it must not: Tx claims again.
		require.NoError(t, rt.Err(db.ExecContext(ctx, "DELETE FROM redquorum_fence")))

		// A function that enters another name, which nobody has claimed, has its error back.
		err = g.Tx(ctx, nil, "r", 8, func(tx *sql.Tx) error { return g.Enter(ctx, tx, "s", 8) })
		require.ErrorAs(t, err, &step)
		assert.Equal(t, fence.StepWrite, step.Step)
		assert.ErrorIs(t, err, fencesql.ErrNotClaimed)

		calls := 0
		require.NoError(t, g.Tx(ctx, nil, "r", 8, func(tx *sql.Tx) error {
			if calls++; calls < 3 {
				return d.conflict()
			}
			_, err := tx.ExecContext(ctx, d.put(), []byte("r"), "eight")
			return err
		}))
		assert.Equal(t, 3, calls)
		assert.Equal(t, 0, db.Stats().InUse)
	})
}

func TestBadInputOfDatabases(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, g, f, ctx := d.ready(t)
		step := func(err error) fence.Step { t.Helper(); return stepOf(t, err) }
		for token, want := range map[uint64]error{0: fence.ErrNoToken, fence.MaxToken + 1: fence.ErrTokenRange} {
			assert.ErrorIs(t, g.Check(ctx, "r", token), want)
			assert.ErrorIs(t, f.Put(ctx, "r", token, "v", nil), want)
		}
		long := string(make([]byte, fencesql.MaxResource+1))
		assert.ErrorIs(t, g.Check(ctx, long, 5), fencesql.ErrInput)
		assert.NoError(t, g.Check(ctx, long[1:], 5))
		nothing := func(*sql.Tx) error { t.Error("ran"); return nil }
		assert.ErrorIs(t, g.Tx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted}, "r", 5, nothing), fencesql.ErrInput)
		assert.ErrorIs(t, g.Tx(ctx, &sql.TxOptions{ReadOnly: true}, "r", 5, nothing), fencesql.ErrInput)
		assert.ErrorIs(t, g.Tx(ctx, nil, "r", 5, nil), fencesql.ErrInput)
		assert.ErrorIs(t, g.Enter(ctx, nil, "r", 5), fencesql.ErrInput)

		// A token that nobody has claimed, and one above the claimed one.
		require.NoError(t, g.Check(ctx, "r", 4))
		for resource, token := range map[string]uint64{"none": 5, "r": 5} {
			tx := rt.Must(db.BeginTx(ctx, nil))(t)
			assert.ErrorIs(t, g.Enter(ctx, tx, resource, token), fencesql.ErrNotClaimed)
			require.NoError(t, tx.Rollback())
		}

		missing := rt.Must(fencesql.New(db, d.dialect, fencesql.Table("missing")))(t)
		assert.Equal(t, fence.StepProbe, step(missing.Verify(ctx)))
		assert.Equal(t, fence.StepClaim, step(missing.Check(ctx, "r", 5)))
		assert.Equal(t, fence.StepClaim, step(missing.Tx(ctx, nil, "r", 5, nothing)))
		for _, wrong := range []fencesql.Dialect{fencesql.PostgreSQL, fencesql.MySQL, fencesql.SQLite} {
			if wrong == d.dialect {
				continue
			}
			other := rt.Must(fencesql.New(db, wrong))(t)
			assert.Equal(t, fence.StepProbe, step(other.Verify(ctx)), "%v is not %v", d.dialect, wrong)
		}

		ended, cancel := context.WithCancel(ctx)
		cancel()
		assert.Equal(t, fence.StepClaim, step(g.Check(ended, "r", 5)))
		assert.ErrorIs(t, g.Check(ended, "r", 5), context.Canceled)
		assert.Equal(t, fence.StepClaim, step(g.Tx(ended, nil, "r", 5, nothing)))
		require.NoError(t, g.Check(ctx, "r", 5))
		assert.Equal(t, fence.StepBegin, step(g.Tx(ended, nil, "r", 5, nothing)))
		during, cancel := context.WithCancel(ctx)
		err := g.Tx(during, nil, "r", 5, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(during, d.put(), []byte("r"), "half")
			cancel()
			return err
		})
		failed(t, err, fence.StepCommit, context.Canceled)
		during, cancel = context.WithCancel(ctx)
		err = g.Tx(during, nil, "r", 5, func(tx *sql.Tx) error {
			cancel()
			_, err := tx.ExecContext(during, d.put(), []byte("r"), "half")
			return err
		})
		failed(t, err, fence.StepWrite, context.Canceled)
		assert.Empty(t, rt.Must(f.Get(ctx, "r"))(t))

		require.NoError(t, db.Close())
		assert.Equal(t, fence.StepClaim, step(g.Check(ctx, "r", 5)))
		assert.Equal(t, fence.StepBegin, step(g.Tx(ctx, nil, "r", 5, nothing)))
		assert.Equal(t, fence.StepProbe, step(g.Verify(ctx)))
	})
}
