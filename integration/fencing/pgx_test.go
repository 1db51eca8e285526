//go:build unix

package fencing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencepgx"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

type pgxRows struct {
	*database
	pool  *pgxpool.Pool
	guard *fencepgx.Guard
}

func (r pgxRows) Get(ctx context.Context, resource string) (value string, err error) {
	err = r.pool.QueryRow(ctx, r.get(), []byte(resource)).Scan(&value)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return value, err
}

func (r pgxRows) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return r.guard.Tx(ctx, pgx.TxOptions{}, resource, token, func(tx pgx.Tx) error {
		if entered != nil {
			entered()
		}
		_, err := tx.Exec(ctx, r.put(), []byte(resource), value)
		return err
	})
}

func (r pgxRows) Overwrite(ctx context.Context, resource, value string) error {
	_, err := r.pool.Exec(ctx, r.put(), []byte(resource), value)
	return err
}

// pool opens the database with pgx. change may change what it is opened with.
func (d *database) pool(t testing.TB, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config := rt.Must(pgxpool.ParseConfig(d.source))(t)
	for _, c := range change {
		c(config)
	}
	pool := rt.Must(pgxpool.NewWithConfig(context.Background(), config))(t)
	t.Cleanup(pool.Close)
	return pool
}

func (d *database) overPgx(t testing.TB) fencetest.Fixture {
	db := d.connect(t)
	pool := d.pool(t)
	g := rt.Must(fencepgx.New(pool))(t)
	again := func() (fencetest.Fixture, error) {
		err := d.restart()
		if err != nil {
			return fencetest.Fixture{}, err
		}
		return d.overPgx(t), nil
	}
	return fencetest.Fixture{
		Guard: g, Storage: pgxRows{d, pool, g}, Endings: pgxRows{d, pool, g}.endings(db), Crash: again,
		Reopen: func() (fence.Guard, error) { f, err := again(); return f.Guard, err },
	}
}

// pgxFixture has them, and empties them.
func (d *database) pgxFixture(t *testing.T) fencetest.Fixture {
	d.fixture(t)
	return d.overPgx(t)
}

func pgxReady(t *testing.T) (*database, fencetest.Fixture, *fencepgx.Guard, *pgxpool.Pool) {
	d := postgres(t)
	f := d.pgxFixture(t)
	return d, f, f.Guard.(*fencepgx.Guard), f.Storage.(pgxRows).pool
}

func TestPgxIsAGuard(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *database{"PostgreSQL": postgres, "PgBouncer": pgbouncer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			fencetest.Run(t, d.pgxFixture)
			fencetest.RunSet(t, d.pgxFixture, 30)
		})
	}
}

// batches counts the messages after which a program waits for an answer.
type batches struct{ n int }

func (b *batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	b.n++
	return ctx
}
func (b *batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (b *batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	b.n++
	return ctx
}
func (b *batches) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (b *batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// The same transaction with a fence has no further round trip, nor has the first one of a holder. A single statement and a
// batch are one each, because pgx has prepared the statements before.
func TestPgxEntersWithoutARoundTrip(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	d.fixture(t)
	var trips batches
	pool := d.pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer, c.MaxConns = &trips, 1 })
	g := rt.Must(fencepgx.New(pool))(t)
	ctx := t.Context()
	write := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.put(), []byte("r"), "v")
		return err
	}
	count := func(f func() error) int {
		t.Helper()
		trips.n = 0
		require.NoError(t, f())
		return trips.n
	}
	bare := count(func() error { return pgx.BeginFunc(ctx, pool, write) })
	assert.Equal(t, 3, bare)
	fenced := func(token uint64) int {
		return count(func() error { return g.Tx(ctx, pgx.TxOptions{}, "r", token, write) })
	}
	assert.Equal(t, bare, fenced(5))
	assert.Equal(t, bare, fenced(5))
	assert.Equal(t, bare, fenced(6))
	assert.Equal(t, 1, count(func() error { return g.Check(ctx, "r", 7) }))
	assert.Equal(t, bare, fenced(7))
}

// Every way in which pgx sends statements, and every kind of DB.
func TestPgxModesAndConnections(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	f := d.fixture(t)
	ctx := t.Context()
	use := func(t *testing.T, db fencepgx.DB) {
		g := rt.Must(fencepgx.New(db))(t)
		require.NoError(t, g.Verify(ctx))
		resource := t.Name() + "\x00\xff'\\"
		put := func(token uint64, value string, o pgx.TxOptions) error {
			return g.Tx(ctx, o, resource, token, func(tx pgx.Tx) error {
				nested, err := tx.Begin(ctx)
				if err != nil {
					return err
				}
				if _, err := nested.Exec(ctx, d.put(), []byte(resource), "undone"); err != nil {
					return err
				}
				if err := nested.Rollback(ctx); err != nil {
					return err
				}
				if value == "" {
					return nil
				}
				_, err = tx.Exec(ctx, d.put(), []byte(resource), value)
				return err
			})
		}
		require.NoError(t, put(5, "five", pgx.TxOptions{IsoLevel: pgx.Serializable}))
		require.NoError(t, put(fence.MaxToken-1, "six", pgx.TxOptions{}))
		require.NoError(t, put(fence.MaxToken-1, "", pgx.TxOptions{BeginQuery: "begin isolation level repeatable read", CommitQuery: "commit and no chain"}))
		require.NoError(t, g.Check(ctx, resource, fence.MaxToken))
		assert.ErrorIs(t, put(fence.MaxToken-1, "late", pgx.TxOptions{}), fence.ErrStale)
		assert.Equal(t, "six", rt.Must(f.Storage.Get(ctx, resource))(t))
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			pool := d.pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			use(t, pool)
			assert.Zero(t, pool.Stat().AcquiredConns())
		})
	}
	pool := d.pool(t)
	t.Run("around a pool", func(t *testing.T) { use(t, struct{ *pgxpool.Pool }{pool}) })
	conn := rt.Must(pool.Acquire(ctx))(t)
	defer conn.Release()
	t.Run("connection of a pool", func(t *testing.T) { use(t, conn) })
	t.Run("connection", func(t *testing.T) { use(t, conn.Conn()) })
	t.Run("inside a transaction", func(t *testing.T) {
		tx := rt.Must(conn.Begin(ctx))(t)
		for _, db := range []fencepgx.DB{conn, conn.Conn()} {
			g := rt.Must(fencepgx.New(db))(t)
			assert.ErrorIs(t, g.Check(ctx, "r", 5), fencepgx.ErrInput)
			assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{}, "r", 5, func(pgx.Tx) error { return nil }), fencepgx.ErrInput)
		}
		require.NoError(t, tx.Commit(ctx))
	})
}

// unaware is a pool behind something that does not know of transactions in batches.
type unaware struct{ *pgxpool.Pool }

type unawareResults struct{ pgx.BatchResults }

func (u unaware) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return unawareResults{u.Pool.SendBatch(ctx, b)}
}

func (unawareResults) Tx() pgx.Tx { return nil }

func (r unawareResults) Close() error {
	return errors.Join(r.BatchResults.Close(), r.BatchResults.Tx().Rollback(context.Background()))
}

func TestPgxWantsTransactionsInBatches(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	f := d.pgxFixture(t)
	g := rt.Must(fencepgx.New(unaware{f.Storage.(pgxRows).pool}))(t)
	require.NoError(t, g.Check(t.Context(), "r", 5))
	err := g.Tx(t.Context(), pgx.TxOptions{}, "r", 5, func(pgx.Tx) error { t.Error("ran"); return nil })
	failed(t, err, fence.StepBegin, fencepgx.ErrInput)
	assert.Zero(t, f.Storage.(pgxRows).pool.Stat().AcquiredConns())
}

// Guards over both drivers share the table, and the trigger knows the entries of both.
func TestPgxAndDatabaseSQLShareATable(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	f := d.fixture(t)
	p := d.overPgx(t)
	ctx := t.Context()
	old := f.Guard.(*fencesql.Guard)
	g := p.Guard.(*fencepgx.Guard)
	assert.Equal(t, old.Schema(), g.Schema())
	want := rt.Must(old.Trigger("data", "r"))(t)
	statements := rt.Must(g.Trigger("data", "r"))(t)
	assert.Equal(t, want, statements)
	for _, s := range statements {
		require.NoError(t, rt.Err(p.Storage.(pgxRows).pool.Exec(ctx, s)))
	}
	require.NoError(t, f.Storage.Put(ctx, "r", 5, "five", nil))
	require.NoError(t, p.Storage.Put(ctx, "r", 6, "six", nil))
	assert.ErrorIs(t, f.Storage.Put(ctx, "r", 5, "late", nil), fence.ErrStale)
	require.NoError(t, f.Storage.Put(ctx, "r", 7, "seven", nil))
	assert.ErrorIs(t, p.Storage.Put(ctx, "r", 6, "late", nil), fence.ErrStale)
	assert.ErrorContains(t, p.Storage.Overwrite(ctx, "r", "v"), "redquorum")
	assert.ErrorContains(t, p.Storage.Put(ctx, "another", 6, "v", nil), "redquorum")
	for token, want := range map[uint64]error{6: fence.ErrStale, 8: fencepgx.ErrNotClaimed} { // and it knows no entry that was refused
		tx := rt.Must(p.Storage.(pgxRows).pool.Begin(ctx))(t)
		require.ErrorIs(t, g.Enter(ctx, tx, "r", token), want)
		assert.ErrorContains(t, rt.Err(tx.Exec(ctx, d.put(), []byte("r"), "late")), "redquorum", "token %d", token)
		require.NoError(t, tx.Rollback(ctx))
		plain := rt.Must(f.Storage.(rows).db.BeginTx(ctx, nil))(t)
		require.Error(t, old.Enter(ctx, plain, "r", token))
		assert.ErrorContains(t, rt.Err(plain.ExecContext(ctx, d.put(), []byte("r"), "late")), "redquorum", "token %d", token)
		require.NoError(t, plain.Rollback())
	}
}

func TestPgxClaimThatIsNotKept(t *testing.T) {
	t.Parallel()
	_, _, g, pool := pgxReady(t)
	ctx := t.Context()
	require.NoError(t, g.Check(ctx, "r", 33))
	_, err := pool.Exec(ctx, "CREATE RULE undo AS ON INSERT TO redquorum_fence DO INSTEAD NOTHING")
	require.NoError(t, err)
	assert.Equal(t, fence.StepClaim, stepOf(t, g.Check(ctx, "r", 34)))
	for _, resource := range []string{"r", "new"} { // Tx does not claim for ever
		err = g.Tx(ctx, pgx.TxOptions{}, resource, 35, func(pgx.Tx) error { t.Error("ran"); return nil })
		failed(t, err, fence.StepClaim, fencepgx.ErrNotClaimed)
	}
}

func TestPgxTxClaimsRepeatsAndRollsBack(t *testing.T) {
	t.Parallel()
	d, f, g, pool := pgxReady(t)
	ctx := t.Context()
	require.NoError(t, f.Storage.Put(ctx, "r", 7, "seven", nil))
	half := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.put(), []byte("r"), "half")
		return err
	}
	broken := errors.New("broken")
	err := g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error { return errors.Join(half(tx), broken) })
	failed(t, err, fence.StepWrite, broken)
	assert.PanicsWithValue(t, broken, func() {
		_ = g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error { _ = half(tx); panic(broken) })
	})
	err = g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error {
		_ = half(tx)
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
		return nil
	})
	failed(t, err, fence.StepCommit, pgx.ErrTxCommitRollback)
	err = g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error {
		_ = half(tx)
		return tx.Rollback(ctx)
	})
	failed(t, err, fence.StepCommit, pgx.ErrTxClosed)
	assert.ErrorIs(t, err, fencepgx.ErrEnded)
	for _, result := range []error{nil, broken} { // a statement that ends it is noticed, too
		err = g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error { return errors.Join(rt.Err(tx.Exec(ctx, "ROLLBACK")), result) })
		failed(t, err, fence.StepCommit, fencepgx.ErrEnded)
		assert.Equal(t, result != nil, errors.Is(err, broken))
	}

	// A function that enters another name, which nobody has claimed, has its error back.
	err = g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error { return g.Enter(ctx, tx, "s", 8) })
	failed(t, err, fence.StepWrite, fencepgx.ErrNotClaimed)
	assert.Equal(t, "seven", rt.Must(f.Storage.Get(ctx, "r"))(t))
	assert.ErrorIs(t, g.Check(ctx, "r", 7), fence.ErrStale, "8 was claimed")

	// A table that forgets, which it must not: Tx claims again.
	require.NoError(t, rt.Err(pool.Exec(ctx, "DELETE FROM redquorum_fence")))

	calls := 0
	require.NoError(t, g.Tx(ctx, pgx.TxOptions{}, "r", 8, func(tx pgx.Tx) error {
		if calls++; calls < 3 {
			return fmt.Errorf("insert: %w", &pgconn.PgError{Code: []string{"40001", "40P01"}[calls-1]})
		}
		_, err := tx.Exec(ctx, d.put(), []byte("r"), "eight")
		return err
	}))
	assert.Equal(t, 3, calls)
	assert.Zero(t, pool.Stat().AcquiredConns())
}

// A real conflict: a serializable transaction that has read what another one has changed since.
func TestPgxTxRepeatsWhatTheServerAsksFor(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	f := d.pgxFixture(t)
	g := f.Guard.(*fencepgx.Guard)
	ctx := t.Context()
	require.NoError(t, f.Storage.Overwrite(ctx, "r", "0"))
	calls := 0
	require.NoError(t, g.Tx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "r", 5, func(tx pgx.Tx) error {
		var value int
		if err := tx.QueryRow(ctx, "SELECT value::int FROM data WHERE name = 'r'").Scan(&value); err != nil {
			return err
		}
		if calls++; calls == 1 {
			require.NoError(t, f.Storage.Overwrite(ctx, "r", "10"))
		}
		_, err := tx.Exec(ctx, d.put(), []byte("r"), strconv.Itoa(value+1))
		return err
	}))
	assert.Equal(t, 2, calls)
	assert.Equal(t, "11", rt.Must(f.Storage.Get(ctx, "r"))(t))
}

func stepOf(t *testing.T, err error) fence.Step {
	t.Helper()
	s := rt.As[*fence.StepError](t, err)
	assert.NotEmpty(t, s.Error())
	return s.Step
}

func failed(t *testing.T, err error, step fence.Step, cause error) {
	t.Helper()
	assert.Equal(t, step, stepOf(t, err))
	assert.ErrorIs(t, err, cause)
}

func TestBadInputOfPgx(t *testing.T) {
	t.Parallel()
	d, f, g, pool := pgxReady(t)
	ctx := t.Context()
	for _, options := range [][]fencepgx.Option{
		{fencepgx.Table("")}, {fencepgx.Table("a.b.c")}, {fencepgx.Table("t; DROP TABLE t")},
		{fencepgx.HoldTimeout(0)}, {fencepgx.HoldTimeout(25 * time.Hour)},
	} {
		none, err := fencepgx.New(pool, options...)
		assert.ErrorIs(t, err, fencepgx.ErrInput)
		assert.Nil(t, none)
	}
	assert.ErrorIs(t, rt.Err(fencepgx.New(nil)), fencepgx.ErrInput)
	assert.ErrorIs(t, rt.Err(g.Trigger("a.b.c")), fencepgx.ErrInput)

	nothing := func(pgx.Tx) error { t.Error("ran"); return nil }
	negative := int64(-1)
	for token, want := range map[uint64]error{0: fence.ErrNoToken, fence.MaxToken + 1: fence.ErrTokenRange, uint64(negative): fence.ErrTokenRange} {
		assert.ErrorIs(t, g.Check(ctx, "r", token), want)
		assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{}, "r", token, nothing), want)
	}
	long := string(make([]byte, fencepgx.MaxResource+1))
	assert.ErrorIs(t, g.Check(ctx, long, 5), fencepgx.ErrInput)
	assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{}, long, 5, nothing), fencepgx.ErrInput)
	assert.NoError(t, g.Check(ctx, long[1:], 5))
	assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadUncommitted}, "r", 5, nothing), fencepgx.ErrInput)
	assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly}, "r", 5, nothing), fencepgx.ErrInput)
	assert.ErrorIs(t, g.Tx(ctx, pgx.TxOptions{}, "r", 5, nil), fencepgx.ErrInput)
	assert.ErrorIs(t, g.Enter(ctx, nil, "r", 5), fencepgx.ErrInput)
	assert.Equal(t, fence.StepEnter, stepOf(t, g.Tx(ctx, pgx.TxOptions{BeginQuery: "begin read only"}, "ro", 5, nothing)))
	require.NoError(t, g.Check(ctx, "ro", 5))
	assert.Equal(t, fence.StepEnter, stepOf(t, g.Tx(ctx, pgx.TxOptions{BeginQuery: "no"}, "ro", 5, nothing)))
	assert.Equal(t, fence.StepClaim, stepOf(t, g.Tx(ctx, pgx.TxOptions{BeginQuery: "no"}, "ro", 6, nothing)))

	// A token that nobody has claimed, one above the claimed one, and one below it.
	require.NoError(t, g.Check(ctx, "r", 4))
	for _, c := range []struct {
		resource string
		token    uint64
		want     error
	}{{"none", 5, fencepgx.ErrNotClaimed}, {"r", 5, fencepgx.ErrNotClaimed}, {"r", 3, fence.ErrStale}, {"r", 0, fence.ErrNoToken}, {long, 4, fencepgx.ErrInput}} {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return g.Enter(ctx, tx, c.resource, c.token) })
		assert.ErrorIs(t, err, c.want)
	}

	missing := rt.Must(fencepgx.New(pool, fencepgx.Table("missing")))(t)
	assert.Equal(t, fence.StepProbe, stepOf(t, missing.Verify(ctx)))
	assert.Equal(t, fence.StepClaim, stepOf(t, missing.Check(ctx, "r", 5)))
	assert.Equal(t, fence.StepClaim, stepOf(t, missing.Tx(ctx, pgx.TxOptions{}, "r", 5, nothing)))
	tx := rt.Must(pool.Begin(ctx))(t)
	assert.Equal(t, fence.StepEnter, stepOf(t, missing.Enter(ctx, tx, "r", 5)))
	require.NoError(t, tx.Rollback(ctx))

	require.NoError(t, rt.Err(pool.Exec(ctx, "CREATE UNLOGGED TABLE fleeting (LIKE redquorum_fence INCLUDING ALL)")))
	assert.ErrorIs(t, rt.Must(fencepgx.New(pool, fencepgx.Table("fleeting")))(t).Verify(ctx), fencepgx.ErrUnfit)

	// A context that ends in each step.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	assert.Equal(t, fence.StepClaim, stepOf(t, g.Check(ended, "r", 5)))
	assert.ErrorIs(t, g.Check(ended, "r", 5), context.Canceled)
	err := g.Tx(ended, pgx.TxOptions{}, "r", 5, nothing)
	failed(t, err, fence.StepBegin, context.Canceled)
	half := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, d.put(), []byte("r"), "half")
		return err
	}
	during, cancel := context.WithCancel(ctx)
	err = g.Tx(during, pgx.TxOptions{}, "r", 5, func(tx pgx.Tx) error { defer cancel(); return half(during, tx) })
	failed(t, err, fence.StepCommit, context.Canceled)
	during, cancel = context.WithCancel(ctx)
	err = g.Tx(during, pgx.TxOptions{}, "r", 5, func(tx pgx.Tx) error { cancel(); return half(during, tx) })
	failed(t, err, fence.StepWrite, context.Canceled)
	require.NoError(t, f.Storage.Put(ctx, "r", 5, "", func() { // 6 waits for 5: by itself, and in the batch of Tx
		for _, claim := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return g.Check(ctx, "r", 6) },
			func(ctx context.Context) error { return g.Tx(ctx, pgx.TxOptions{}, "r", 6, nothing) },
		} {
			ended, cancel := context.WithCancel(ctx)
			go func() {
				defer cancel()
				waiting := 0
				for waiting == 0 && ctx.Err() == nil {
					assert.NoError(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting))
				}
			}()
			err := claim(ended)
			failed(t, err, fence.StepClaim, context.Canceled)
			assert.Eventually(t, func() bool { // the server has noticed
				waiting := 1
				return pool.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting) == nil && waiting == 0
			}, time.Minute, time.Millisecond)
		}
	}))
	assert.Empty(t, rt.Must(f.Storage.Get(ctx, "r"))(t))

	pool.Close()
	assert.Equal(t, fence.StepClaim, stepOf(t, g.Check(ctx, "r", 5)))
	assert.Equal(t, fence.StepBegin, stepOf(t, g.Tx(ctx, pgx.TxOptions{}, "r", 5, nothing)))
	assert.Equal(t, fence.StepProbe, stepOf(t, g.Verify(ctx)))
}
