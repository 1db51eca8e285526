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
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

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
