//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A cell is what becomes of two additions to one number. The holder 33 has claimed. The holder 34 reads in
// a transaction, 33 adds, and 34 enters and writes what it has computed.
type outcome string

const (
	right    outcome = "right"    // the late write of 33 was refused
	lost     outcome = "lost"     // both were acknowledged, and one is not there
	repeated outcome = "repeated" // 34 is told to begin anew
	waits    outcome = "waits"    // 33 waits until 34 has ended, and its addition is not acknowledged
)

// The table of the package comment of fencesql. In the bad cells 34 begins and reads before it claims. They must come out
// as they are listed: if one of them loses nothing, the table is wrong.
var cells = map[string][]struct {
	isolation sql.IsolationLevel
	before    outcome // begun and read before the claim
}{
	"PostgreSQL": {{sql.LevelReadCommitted, lost}, {sql.LevelRepeatableRead, repeated}, {sql.LevelSerializable, repeated}},
	"MySQL":      {{sql.LevelReadCommitted, lost}, {sql.LevelRepeatableRead, lost}, {sql.LevelSerializable, waits}},
	"SQLite":     {{sql.LevelDefault, repeated}},
}

func TestIsolationMatrix(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db := d.connect(t)
		g := d.guard(t, db)
		if d.dialect == fencesql.MySQL { // who waits is not kept for the usual 50 s
			require.NoError(t, rt.Err(db.ExecContext(t.Context(), "SET GLOBAL innodb_lock_wait_timeout = 1")))
			db = d.connect(t)
			g = d.guard(t, db)
		}
		for i, cell := range cells[d.dialect.String()] {
			for _, order := range []string{"claim, begin, enter, read", "claim, begin, read, enter", "begin, read, claim, enter"} {
				t.Run(fmt.Sprint(cell.isolation, ": ", order), func(t *testing.T) {
					want, patience := right, 30*time.Second
					if order == "begin, read, claim, enter" {
						want = cell.before
					}
					if want == waits { // for nobody: 34 goes on when 33 has given up
						patience = 300 * time.Millisecond
					}
					assert.Equal(t, want, d.play(t, db, g, fmt.Sprint(i, order), cell.isolation, order, patience))
				})
			}
		}
	})
}

func (d *database) number(ctx context.Context, tx *sql.Tx, resource string) (n int, err error) {
	var text string
	if err = tx.QueryRowContext(ctx, d.get(), []byte(resource)).Scan(&text); err == nil {
		n, err = strconv.Atoi(text)
	}
	return n, err
}

func (d *database) setNumber(ctx context.Context, tx *sql.Tx, resource string, n int) error {
	return rt.Err(tx.ExecContext(ctx, d.put(), []byte(resource), strconv.Itoa(n)))
}

// play is one cell. patience is that of 33.
func (d *database) play(t *testing.T, db *sql.DB, g *fencesql.Guard, resource string, isolation sql.IsolationLevel, order string, patience time.Duration) outcome {
	ctx := rt.Within(t, time.Minute)
	at := []byte(resource)
	require.NoError(t, g.Check(ctx, resource, 33))
	require.NoError(t, rt.Err(db.ExecContext(ctx, d.put(), at, "0")))

	old := func() error { // 33 adds, in a transaction that is right in itself
		short, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return g.Tx(short, nil, resource, 33, func(tx *sql.Tx) error {
			n, err := d.number(short, tx, resource)
			return errors.Join(err, d.setNumber(short, tx, resource, n+1))
		})
	}
	if order != "begin, read, claim, enter" {
		require.NoError(t, g.Check(ctx, resource, 34))
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: isolation})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	var value int
	var late error
	if order == "claim, begin, enter, read" {
		require.NoError(t, g.Enter(ctx, tx, resource, 34))
		value = rt.Must(d.number(ctx, tx, resource))(t)
		if late = fence.ErrStale; d.dialect != fencesql.SQLite { // there 33 would wait for the one writer
			late = old()
		}
	} else {
		value = rt.Must(d.number(ctx, tx, resource))(t)
		late = old()
		if order == "begin, read, claim, enter" {
			require.NoError(t, g.Check(ctx, resource, 34))
		}
		err = g.Enter(ctx, tx, resource, 34)
	}
	if err == nil {
		err = d.setNumber(ctx, tx, resource, value+1)
	}
	if err == nil {
		err = tx.Commit()
	}
	_ = tx.Rollback()

	var final string
	require.NoError(t, db.QueryRowContext(ctx, d.get(), at).Scan(&final))
	t.Logf("33: %v; 34: %v; the number is %s", late, err, final)
	switch {
	case late == nil && err == nil && final == "1":
		return lost
	case late == nil && err != nil && final == "1":
		require.True(t, d.asks(err), "%v", err)
		return repeated
	case err == nil && final == "1":
		if assert.NotNil(t, late) && late != fence.ErrStale {
			if _, waited := late.(*fence.StepError); waited {
				return waits
			}
			assert.ErrorIs(t, late, fence.ErrStale)
		}
		return right
	}
	return outcome(fmt.Sprintf("33: %v; 34: %v; %s", late, err, final))
}

func TestTriggerRefusesWritesThatHaveNotEntered(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		db, g, _, ctx := d.ready(t)
		statements, err := g.Trigger("data", "mine", "also:'\xff")
		if d.dialect != fencesql.PostgreSQL {
			assert.ErrorIs(t, err, fencesql.ErrInput)
			return
		}
		require.NoError(t, err)
		for _, table := range []string{"", "data; DROP TABLE data", "a.b.c", `"data"`} {
			assert.ErrorIs(t, rt.Err(g.Trigger(table)), fencesql.ErrInput)
		}
		for range 2 {
			for _, s := range statements {
				require.NoError(t, rt.Err(db.ExecContext(ctx, s)), s)
			}
		}
		refused := func(err error) {
			t.Helper()
			assert.ErrorContains(t, err, "redquorum")
			assert.ErrorContains(t, err, "55000")
		}
		write := func(value string) func(tx *sql.Tx) error {
			return func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, d.put(), []byte("k"), value)
				return err
			}
		}
		for _, s := range []string{
			"INSERT INTO data VALUES ('k', 'v')", "UPDATE data SET value = 'v'", "DELETE FROM data", "TRUNCATE data",
			"INSERT INTO data VALUES ('k', 'v') ON CONFLICT (name) DO UPDATE SET value = 'v'",
		} {
			_, err := db.ExecContext(ctx, s)
			refused(err)
		}
		require.NoError(t, g.Tx(ctx, nil, "mine", 5, write("five")))
		require.NoError(t, g.Tx(ctx, nil, "also:'\xff", 5, write("other")))
		refused(g.Tx(ctx, nil, "another", 5, write("another")))
		_, err = db.ExecContext(ctx, "DELETE FROM data")
		refused(err) // an entry ends with its transaction, also on the connection that had it

		// One that says that it has entered, and has not: the token is looked at again.
		require.NoError(t, g.Check(ctx, "mine", 6))
		tx := rt.Must(db.BeginTx(ctx, nil))(t)
		require.NoError(t, rt.Err(tx.ExecContext(ctx, "SET LOCAL redquorum.fence = '6d696e65:5'")))
		refused(write("forged")(tx))
		require.NoError(t, tx.Rollback())

		// A savepoint that is undone undoes the entry.
		tx = rt.Must(db.BeginTx(ctx, nil))(t)
		require.NoError(t, rt.Err(tx.ExecContext(ctx, "SAVEPOINT s")))
		require.NoError(t, g.Enter(ctx, tx, "mine", 6))
		require.NoError(t, rt.Err(tx.ExecContext(ctx, "ROLLBACK TO s")))
		refused(write("undone")(tx))
		require.NoError(t, tx.Rollback())

		for _, s := range rt.Must(g.Trigger("data"))(t) {
			require.NoError(t, rt.Err(db.ExecContext(ctx, s)), s)
		}
		require.NoError(t, g.Tx(ctx, nil, "another", 5, write("another")))
		_, err = db.ExecContext(ctx, "DELETE FROM data")
		refused(err)
	})
}

// Rows are reached by other names than that of their table, and a transaction may have entered several locks. The fence
// table is the one that the trigger was made with, whatever the search_path of the writer.
func TestTriggerRefusesWritesByOtherWays(t *testing.T) {
	t.Parallel()
	d := postgres(t)
	db := d.connect(t)
	g := d.guard(t, db)
	ctx := t.Context()
	do := func(statements ...string) {
		t.Helper()
		for _, s := range statements {
			require.NoError(t, rt.Err(db.ExecContext(ctx, s)), s)
		}
	}
	do("CREATE TABLE parts (id INT, v INT) PARTITION BY RANGE (id)", "CREATE TABLE part1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
		"CREATE TABLE parent (id INT, v INT)", "CREATE TABLE child () INHERITS (parent)", "CREATE SCHEMA tenant", "CREATE TABLE tenant.redquorum_fence (LIKE redquorum_fence)")
	for table, lock := range map[string]string{"parts": "A", "child": "B", "data": ""} {
		var names []string
		if lock != "" {
			names = append(names, lock)
		}
		for range 2 {
			do(rt.Must(g.Trigger(table, names...))(t)...)
		}
	}
	do(rt.Must(g.Trigger("part1", "A"))(t)...) // as who has not trusted that of its parent
	do("CREATE TABLE part2 PARTITION OF parts FOR VALUES FROM (100) TO (200)")
	ways := map[string][]string{
		"A": {"INSERT INTO parts VALUES (1, 7), (101, 7)", "INSERT INTO part1 VALUES (2, 7)", "UPDATE part1 SET v = 8", "UPDATE part2 SET id = 102", "UPDATE parts SET id = 3 WHERE id = 102", "DELETE FROM part1"},
		"B": {"INSERT INTO child VALUES (1, 7)", "UPDATE parent SET v = 8", "DELETE FROM parent", "TRUNCATE parent"},
		"":  {"INSERT INTO data VALUES ('k', 'v')", "TRUNCATE data"},
	}
	run := func(tx *sql.Tx, locks ...string) (err error) {
		for _, lock := range locks {
			for _, s := range ways[lock] {
				err = errors.Join(err, rt.Err(tx.ExecContext(ctx, s)))
			}
		}
		return err
	}
	require.NoError(t, errors.Join(g.Check(ctx, "A", 5), g.Check(ctx, "B", 5), g.Check(ctx, "C", 5)))
	ways["left"] = []string{"INSERT INTO parts VALUES (1, 7), (101, 7)", "INSERT INTO child VALUES (1, 7)"}
	require.NoError(t, g.Tx(ctx, nil, "A", 5, func(tx *sql.Tx) error {
		return errors.Join(g.Enter(ctx, tx, "B", 5), g.Enter(ctx, tx, "C", 5), g.Enter(ctx, tx, "B", 5), run(tx, "A", "B", "", "left"))
	}), "it has entered all")
	for _, lock := range []string{"A", "B"} {
		other := map[string]string{"A": "B", "B": "A"}[lock]
		for _, s := range ways[lock] {
			assert.ErrorContains(t, rt.Err(db.ExecContext(ctx, s)), "has not entered", s)
			assert.ErrorContains(t, g.Tx(ctx, nil, other, 5, func(tx *sql.Tx) error { return rt.Err(tx.ExecContext(ctx, s)) }), "has not entered", "with %s: %s", other, s)
		}
	}

	do(rt.Must(g.Trigger("child"))(t)...) // for any lock
	assert.ErrorContains(t, rt.Err(db.ExecContext(ctx, "UPDATE parent SET v = 9")), "has not entered")
	do("INSERT INTO tenant.redquorum_fence VALUES ('A', 4)") // who enters there is overtaken here
	for path, token := range map[string]uint64{"tenant": 4, "nowhere": 5} {
		tx := rt.Must(db.BeginTx(ctx, nil))(t)
		if path == "nowhere" {
			require.NoError(t, g.Enter(ctx, tx, "A", token))
		}
		require.NoError(t, rt.Err(tx.ExecContext(ctx, "SET LOCAL search_path = "+path)))
		if path == "tenant" {
			require.NoError(t, g.Enter(ctx, tx, "A", token))
		}
		_, err := tx.ExecContext(ctx, "UPDATE public.parts SET v = 9")
		if path == "tenant" {
			assert.ErrorContains(t, err, "greater token")
		} else {
			assert.NoError(t, err)
		}
		require.NoError(t, tx.Rollback())
	}
}
