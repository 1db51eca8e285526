//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencepgx"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// end lets a server end a transaction, or a statement of it. run executes a statement in the transaction. The error is
// that of a way that does not lead there.
type end func(ctx context.Context, run func(statement string) error) error

func want(run func(string) error, statement string) error {
	if run(statement) == nil {
		return errors.New("no error: " + statement)
	}
	return nil
}

var rowsOfOthers atomic.Int64

// held are the statements that change two rows, the first of which is another transaction's until ended is called.
func held(ctx context.Context, d *database, db *sql.DB) (first, second string, other *sql.Tx, err error) {
	n := rowsOfOthers.Add(400)
	weight := make([]string, 300) // who has changed more is not the victim of MariaDB
	for i := range weight {
		weight[i] = fmt.Sprintf("(%d, 0)", n+int64(i))
	}
	if _, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO busy VALUES (%d, 0), (%d, 0)", n+301, n+302)); err != nil {
		return "", "", nil, err
	}
	first, second = fmt.Sprintf("UPDATE busy SET n = n + 1 WHERE id = %d", n+301), fmt.Sprintf("UPDATE busy SET n = n + 1 WHERE id = %d", n+302)
	if other, err = db.BeginTx(ctx, nil); err != nil {
		return "", "", nil, err
	}
	_, err = other.ExecContext(ctx, "INSERT INTO busy VALUES "+strings.Join(weight, ", "))
	return first, second, other, errors.Join(err, rt.Err(other.ExecContext(ctx, first)))
}

func (d *database) lockTimeout(db *sql.DB, set string) end {
	return func(ctx context.Context, run func(string) error) error {
		first, _, other, err := held(ctx, d, db)
		if err != nil {
			return err
		}
		defer other.Rollback()
		if err := run(set); err != nil {
			return err
		}
		return want(run, first)
	}
}

// deadlock is one whose victim is the transaction that calls run.
func (d *database) deadlock(db *sql.DB) end {
	return func(ctx context.Context, run func(string) error) error {
		first, second, other, err := held(ctx, d, db)
		if err != nil {
			return err
		}
		defer other.Rollback()
		if d.dialect == fencesql.PostgreSQL { // whoever has waited for so long is the victim
			err = errors.Join(run("SET LOCAL deadlock_timeout = '10ms'"), rt.Err(other.ExecContext(ctx, "SET LOCAL deadlock_timeout = '1h'")))
		}
		if err = errors.Join(err, run(second)); err != nil {
			return err
		}
		waiting := fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query = '%s'", second)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = other.ExecContext(ctx, second)
		}()
		for n := 0; d.dialect == fencesql.PostgreSQL && n == 0 && err == nil; {
			err = db.QueryRowContext(ctx, waiting).Scan(&n)
		}
		err = errors.Join(err, want(run, first))
		<-done
		return err
	}
}

// ends are the ways of a server, by name. Of those that stay nobody can take back what comes after.
func (d *database) ends(db *sql.DB) (all map[string]end, stay []string) {
	failing := func(statement string) end {
		return func(_ context.Context, run func(string) error) error { return want(run, statement) }
	}
	savepoint := func(failing string) end {
		return func(_ context.Context, run func(string) error) error {
			err := run("SAVEPOINT mine")
			if err == nil {
				err = want(run, failing)
			}
			if err == nil {
				err = run("ROLLBACK TO SAVEPOINT mine")
			}
			return err
		}
	}
	switch d.dialect {
	case fencesql.PostgreSQL:
		return map[string]end{
			"commit":               func(_ context.Context, run func(string) error) error { return run("COMMIT") },
			"statement that fails": failing("SELECT 1 / 0"),
			"killed connection":    failing("SELECT pg_terminate_backend(pg_backend_pid())"),
			"savepoint":            savepoint("SELECT 1 / 0"),
			"lock timeout":         d.lockTimeout(db, "SET LOCAL lock_timeout = '1ms'"),
			"deadlock":             d.deadlock(db),
		}, []string{"commit"}
	case fencesql.MySQL:
		return map[string]end{
			"implicit commit": func(_ context.Context, run func(string) error) error {
				return run("CREATE TABLE IF NOT EXISTS made (id INT)")
			},
			"commit":            func(_ context.Context, run func(string) error) error { return run("COMMIT") },
			"begins anew":       func(_ context.Context, run func(string) error) error { return run("START TRANSACTION") },
			"killed connection": failing("KILL CONNECTION_ID()"),
			"savepoint":         savepoint("INSERT INTO busy VALUES (1, 0)"),
			"lock timeout":      d.lockTimeout(db, "SET SESSION innodb_lock_wait_timeout = 0"),
			"deadlock":          d.deadlock(db),
		}, nil
	}
	return map[string]end{
		"conflict clause": failing("INSERT OR ROLLBACK INTO busy VALUES (1, 0)"),
		"raise":           failing("INSERT INTO busy VALUES (-1, 0)"),
		"savepoint":       savepoint("INSERT INTO busy VALUES (1, 0)"),
	}, []string{"conflict clause", "raise"}
}

// endings are these ways with a guard. tx runs a function in a transaction of it.
func (d *database) endings(db *sql.DB, tx func(ctx context.Context, resource string, token uint64, f func(run func(statement string, args ...any) error) error) error) (all []fencetest.Ending) {
	ends, stay := d.ends(db)
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		all = append(all, fencetest.Ending{Name: name, Stays: slices.Contains(stay, name), Put: func(ctx context.Context, resource string, token uint64, value string, entered func()) error {
			return tx(ctx, resource, token, func(run func(string, ...any) error) error {
				if err := ends[name](ctx, func(statement string) error { return run(statement) }); err != nil {
					return err
				}
				entered()
				err := run(d.put(), []byte(resource), value)
				if d.dialect == fencesql.PostgreSQL { // which takes no statement any more, and tells so at the commit
					return nil
				}
				return err
			})
		}})
	}
	return all
}

func (r rows) endings() []fencetest.Ending {
	return r.database.endings(r.db, func(ctx context.Context, resource string, token uint64, f func(func(string, ...any) error) error) error {
		return r.guard.Tx(ctx, nil, resource, token, func(tx *sql.Tx) error {
			return f(func(statement string, args ...any) error { return rt.Err(tx.ExecContext(ctx, statement, args...)) })
		})
	})
}

func (r pgxRows) endings(db *sql.DB) []fencetest.Ending {
	return r.database.endings(db, func(ctx context.Context, resource string, token uint64, f func(func(string, ...any) error) error) error {
		return r.guard.Tx(ctx, pgx.TxOptions{}, resource, token, func(tx pgx.Tx) error {
			return f(func(statement string, args ...any) error { return rt.Err(tx.Exec(ctx, statement, args...)) })
		})
	})
}

// A transaction that is over inside its function is told of as that, whatever the function returns, and its connection
// is as it was.
func TestEndedTransactionIsTold(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	each(t, func(t *testing.T, d *database) {
		db := d.connect(t)
		db.SetMaxOpenConns(4)
		g := d.guard(t, db)
		f := rows{d, db, g}
		ends, _ := d.ends(db)
		ctx := t.Context()
		ends["function"] = nil
		for name, end := range ends {
			for _, result := range []error{nil, broken} {
				token := uint64(rowsOfOthers.Add(1))
				err := g.Tx(ctx, nil, "r", token, func(tx *sql.Tx) error {
					if end == nil {
						return errors.Join(tx.Rollback(), result)
					}
					require.NoError(t, end(ctx, func(statement string) error { return rt.Err(tx.ExecContext(ctx, statement)) }), name)
					return result
				})
				switch {
				case name == "savepoint" && result == nil:
					require.NoError(t, err)
				case d.dialect == fencesql.PostgreSQL && name != "commit" && name != "function" || name == "savepoint" || strings.Contains(name, "killed"):
					assert.Error(t, err, name)
					assert.NotErrorIs(t, err, fencesql.ErrEnded, name)
				case name == "function" && result != nil: // nothing of it was written
					assert.Equal(t, fence.StepWrite, stepOf(t, err))
				default:
					assert.Equal(t, fence.StepCommit, stepOf(t, err), name)
					assert.ErrorIs(t, err, fencesql.ErrEnded, name)
				}
				if result != nil {
					assert.ErrorIs(t, err, broken)
				}
				require.NoError(t, f.Put(ctx, "r", token, name, nil))
				if d.dialect == fencesql.MySQL { // all connections of the pool commit by themselves
					require.NoError(t, rt.Err(db.ExecContext(ctx, d.put(), []byte("s"), name)))
					value := rt.Must(rows{d, d.connect(t), g}.Get(ctx, "s"))(t)
					assert.Equal(t, name, value)
				}
			}
		}
		assert.Equal(t, 0, db.Stats().InUse)
	})
}

// An own transaction does not keep out a Tx of its holder, nor does a claim that waits behind it, whether the guard
// remembers the claim or not.
func TestHolderDoesNotWaitForItself(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		if d.dialect == fencesql.SQLite {
			return // in SQLite a transaction inside another waits for it
		}
		db := d.connect(t)
		g := d.guard(t, db)
		other := rt.Must(fencesql.New(d.connect(t), d.dialect))(t) // of another process, which remembers nothing
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		nothing := func(*sql.Tx) error { return nil }
		require.NoError(t, g.Tx(ctx, nil, "r", 5, func(*sql.Tx) error {
			require.NoError(t, other.Tx(ctx, nil, "r", 5, nothing))
			if d.dialect != fencesql.PostgreSQL { // InnoDB lets nobody pass a claim that waits
				return nil
			}
			p := d.overPgx(t).Guard.(*fencepgx.Guard)
			bare := func(pgx.Tx) error { return nil }
			require.NoError(t, p.Tx(ctx, pgx.TxOptions{}, "r", 5, bare))
			for i, other := range []fence.Guard{other, p} {
				token := uint64(6 + i)
				assert.ErrorIs(t, other.Check(ctx, "r", 4), fence.ErrStale, "it is refused at once")
				waits, stop := context.WithTimeout(ctx, 300*time.Millisecond)
				defer stop()
				require.ErrorIs(t, other.Check(waits, "r", token), context.DeadlineExceeded)
				for _, err := range []error{g.Tx(ctx, nil, "r", 5, nothing), p.Tx(ctx, pgx.TxOptions{}, "r", 5, bare)} {
					assert.Equal(t, token, rt.As[*fence.StaleError](t, err).Highest, "it was announced")
				}
			}
			return nil
		}), "what has entered goes on")
		require.NoError(t, g.Check(ctx, "r", 7))
	})
}

// A context that ends inside a transaction is the reason of the error, also if database/sql has rolled back before
// the commit is asked for.
func TestContextThatEndsBeforeTheCommitIsTheReason(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		_, g, f, _ := d.ready(t)
		for name, end := range map[string]func(ctx context.Context) (context.Context, func()){
			"cancelled": func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithCancel(ctx)
				return ctx, cancel
			},
			"too late": func(ctx context.Context) (context.Context, func()) {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				t.Cleanup(cancel)
				return ctx, func() { <-ctx.Done() }
			},
		} {
			ctx, ends := end(t.Context())
			err := g.Tx(ctx, nil, "r", 5, func(tx *sql.Tx) error {
				if _, err := tx.Exec(d.put(), []byte("r"), "half"); err != nil {
					return err
				}
				ends()
				require.Eventually(t, func() bool { // until it is rolled back
					_, err := tx.Exec(d.put(), []byte("r"), "half")
					return errors.Is(err, sql.ErrTxDone)
				}, 20*time.Second, time.Millisecond)
				return nil
			})
			var step *fence.StepError
			require.ErrorAs(t, err, &step, name)
			assert.Contains(t, []fence.Step{fence.StepCommit, fence.StepClaim, fence.StepBegin, fence.StepEnter}, step.Step, name)
			assert.ErrorIs(t, err, ctx.Err(), name)
			assert.Empty(t, rt.Must(f.Get(t.Context(), "r"))(t), name)
		}
		assert.NoError(t, g.Check(t.Context(), "r", 6), "nothing of it keeps the next holder out")
	})
}

// A claim waits for what has entered, until its context ends, and the next one is free to wait anew. Also the claim of the
// same token waits: a commit in doubt is still under way somewhere, and who reads after the claim knows what came of it.
func TestClaimWaitsForWhatIsInDoubt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		_, g, f, ctx := d.ready(t)
		require.NoError(t, f.Put(ctx, "r", 5, "before", nil))
		require.NoError(t, f.Put(ctx, "r", 5, "five", func() {
			for _, token := range []uint64{5, 6} {
				short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				err := g.Check(short, "r", token)
				assert.Equal(t, fence.StepClaim, rt.As[*fence.StepError](t, err).Step)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}))
		require.NoError(t, g.Check(ctx, "r", 6))
		assert.Equal(t, "five", rt.Must(f.Get(ctx, "r"))(t))
	})
}

// A claim that the database does not keep is none, whatever the reason: here a trigger that takes it back.
func TestClaimThatIsNotKeptIsAnError(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, g, _, ctx := d.ready(t)
		require.NoError(t, g.Check(ctx, "r", 5))
		for _, statement := range map[fencesql.Dialect][]string{
			fencesql.PostgreSQL: {
				"CREATE FUNCTION ignored() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
				"CREATE TRIGGER ignored BEFORE UPDATE ON redquorum_fence FOR EACH ROW EXECUTE FUNCTION ignored()",
			},
			fencesql.MySQL:  {"CREATE TRIGGER ignored BEFORE UPDATE ON redquorum_fence FOR EACH ROW SET NEW.token = OLD.token"},
			fencesql.SQLite: {"CREATE TRIGGER ignored BEFORE UPDATE ON redquorum_fence BEGIN SELECT RAISE(IGNORE); END"},
		}[d.dialect] {
			require.NoError(t, rt.Err(db.ExecContext(ctx, statement)))
		}
		err := g.Check(ctx, "r", 6)
		step := rt.As[*fence.StepError](t, err)
		assert.Equal(t, fence.StepClaim, step.Step)
		assert.ErrorIs(t, err, fencesql.ErrNotClaimed)
		short, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		err = g.Tx(short, nil, "r", 6, func(*sql.Tx) error { t.Error("entered"); return nil })
		require.ErrorAs(t, err, &step)
		assert.Equal(t, fence.StepClaim, step.Step)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
