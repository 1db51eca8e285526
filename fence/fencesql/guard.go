package fencesql

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/internal/claims"
)

// MaxResource is the greatest length of a lock name, in bytes.
const MaxResource = 1024

// Guard is a fence.Guard in a table. It is safe for concurrent use.
//
// It is no fence.AtomicGuard: a write elsewhere could go on when the connection that holds the row
// has broken.
type Guard struct {
	db      *sql.DB
	dialect Dialect
	table   string
	hold    time.Duration
	ask     Statements

	known claims.Known
}

var _ fence.Guard = (*Guard)(nil)

// Option is an option of New.
type Option func(*Guard)

// Table names the table, in place of redquorum_fence. The name may have a schema before it:
// "app.fence". It needs no quotes: ASCII letters, digits and underscores.
func Table(name string) Option { return func(g *Guard) { g.table = name } }

// HoldTimeout is for how long a transaction that has entered may ask nothing, before the server ends
// it: 30 s, unless this says otherwise. It bounds how long a holder that stopped inside a transaction
// keeps the next one waiting. The least is 1 ms. MySQL counts in seconds, and rounds up; there the
// bound stays on the connection, as its wait_timeout and net_write_timeout. SQLite has no such bound.
// In PostgreSQL it is no bound for a holder that stopped while the server sends it rows.
func HoldTimeout(d time.Duration) Option { return func(g *Guard) { g.hold = d } }

// New returns the guard of a database. It asks the database nothing: Verify does.
//
// Errors: one that matches ErrInput.
func New(db *sql.DB, dialect Dialect, options ...Option) (*Guard, error) {
	g := &Guard{db: db, dialect: dialect, table: usual, hold: 30 * time.Second}
	for _, o := range options {
		o(g)
	}
	switch {
	case db == nil:
		return nil, fmt.Errorf("%w: nil *sql.DB", ErrInput)
	case dialect < PostgreSQL || dialect > SQLite:
		return nil, fmt.Errorf("%w: %v", ErrInput, dialect)
	case !name.MatchString(g.table):
		return nil, fmt.Errorf("%w: table %.80q", ErrInput, g.table)
	case g.hold < time.Millisecond || g.hold > 24*time.Hour:
		return nil, fmt.Errorf("%w: HoldTimeout of %v, not 1 ms to 24 h", ErrInput, g.hold)
	}
	g.ask = dialect.statements(g.table)
	return g, nil
}

// Schema returns the statements that make the table, for your migrations. They may be executed again, and not by two
// processes at one time: PostgreSQL fails one of them with the error 23505. A service that starts with them takes a lock.
func (g *Guard) Schema() []string { return append([]string(nil), g.ask.Schema...) }

// Verify asks whether the guard can work: the table is there, and a claim survives a crash as far as
// the server's settings tell. Call it at the start of a service.
//
// Errors: a *fence.StepError with StepProbe. It matches ErrUnfit if the settings are wrong.
func (g *Guard) Verify(ctx context.Context) error {
	failed := func(err error) error {
		return &fence.StepError{Step: fence.StepProbe, Resource: g.table, Err: err}
	}
	var token sql.NullInt64
	if err := g.db.QueryRowContext(ctx, "SELECT max(token) FROM "+g.table+" WHERE 1 = 0").Scan(&token); err != nil {
		return failed(err)
	}
	for _, statement := range g.ask.Verify {
		var wrong string
		if err := g.db.QueryRowContext(ctx, statement).Scan(&wrong); err != nil {
			return failed(fmt.Errorf("not %v, or no permission: %w", g.dialect, err))
		}
		if wrong != "" {
			return failed(fmt.Errorf("%w: %s", ErrUnfit, wrong))
		}
	}
	return nil
}

// Check is the claim. When it returns nil, the claim is committed, and no transaction that has entered
// under a smaller token or the same one before the call is still open. It waits for such transactions:
// ctx bounds that, and so does HoldTimeout. While it waits, nobody enters with a smaller token, also
// if ctx ends the wait. Check repeats what the server says is to be repeated, until ctx ends.
//
// Do not call it with the name and the token of a transaction of your own that is open: it waits for
// that. Tx does not.
//
// Errors beside those of fence.Guard: one that matches ErrInput for a longer name than MaxResource,
// or a *fence.StepError with StepClaim.
func (g *Guard) Check(ctx context.Context, resource string, token uint64) error {
	return g.check(ctx, resource, token, true)
}

func (g *Guard) check(ctx context.Context, resource string, token uint64, settle bool) error {
	if err := g.input(resource, token); err != nil {
		return err
	}
	var highest uint64
	most := 64 * time.Millisecond
	if g.dialect == SQLite {
		most = time.Millisecond
	}
	err := claims.Repeat(ctx, most, g.dialect.again, func() (err error) {
		highest, err = g.claimed(ctx, []byte(resource), int64(token), settle)
		return err
	})
	if err == nil && highest < token { // the server has not done what it has acknowledged: a trigger, or a replica that answers
		err = fmt.Errorf("%w: the database has %d after the claim", ErrNotClaimed, highest)
	}
	if err != nil {
		return &fence.StepError{Step: fence.StepClaim, Resource: resource, Token: token, Err: because(ctx, err)}
	}
	if err = fence.Admit(resource, highest, token); err == nil {
		g.known.Add(resource, token)
	}
	return err
}

// claimed raises the token, and returns the greatest one. With settle it also waits for transactions of an equal token.
func (g *Guard) claimed(ctx context.Context, resource []byte, token int64, settle bool) (highest uint64, err error) {
	if g.dialect == PostgreSQL { // a statement alone commits when it has been executed
		result, err := g.db.ExecContext(ctx, g.ask.Try, resource, token)
		if locked(err) {
			if _, err = g.db.ExecContext(ctx, g.ask.Announce, resource, token); err == nil {
				result, err = g.db.ExecContext(ctx, g.ask.Claim, resource, token)
			}
		}
		if err != nil {
			return 0, err
		}
		if raised, err := result.RowsAffected(); err != nil || raised == 1 {
			return uint64(token), err
		}
		if settle {
			err = g.db.QueryRowContext(ctx, g.ask.Settle, resource, token).Scan(&highest)
		}
		if !settle || errors.Is(err, sql.ErrNoRows) {
			err = g.db.QueryRowContext(ctx, g.ask.Current, resource).Scan(&highest)
		}
		return highest, err
	}
	if g.dialect == MySQL && !settle { // a claim waits for the holder's own transactions
		err = g.db.QueryRowContext(ctx, literal(looking, g.table, hexed(resource))).Scan(&highest)
		if err == nil && highest >= uint64(token) || err != nil && !errors.Is(err, sql.ErrNoRows) {
			return highest, err
		}
	}
	// MySQL may have autocommit off. SQLite tells of a commit that fails when it is asked for.
	err = g.transaction(ctx, true, nil, func(step fence.Step, err error) error { return err }, func(s *session) error {
		claim, current, claimArgs, currentArgs := g.ask.Claim, g.ask.Current, []any{resource, token}, []any{resource}
		if g.dialect == MySQL {
			number := strconv.FormatInt(token, 10)
			claim, current, claimArgs, currentArgs = literal(claim, hexed(resource), number, number), literal(current, hexed(resource)), nil, nil
		}
		if _, err := s.tx.ExecContext(ctx, claim, claimArgs...); err != nil {
			return err
		}
		if err := s.tx.QueryRowContext(ctx, current, currentArgs...).Scan(&highest); err != nil {
			return err
		}
		if highest > uint64(token) {
			return errStale // nothing to commit
		}
		return nil
	})
	if errors.Is(err, errStale) {
		err = nil
	}
	return highest, err
}

// looking reads a token, and locks nothing.
const looking = "SELECT token FROM ? WHERE resource = ?"

var errStale = errors.New("stale")

// Enter is the first statement of a transaction that writes. When it returns nil, token is the
// greatest one, and stays it until the transaction ends. Call Check before the transaction begins:
// see Isolation in the package comment. On any error the caller rolls back at once, because the
// transaction may block claims. So it does on any error of a later statement: the server may have ended
// the transaction, and the entry with it. Tx proves that it has not.
//
// Errors: those of fence.Guard for the token; one that matches ErrNotClaimed if token is above the
// greatest one, or ErrInput; or a *fence.StepError with StepEnter.
func (g *Guard) Enter(ctx context.Context, tx *sql.Tx, resource string, token uint64) error {
	if tx == nil {
		return fmt.Errorf("%w: nil *sql.Tx", ErrInput)
	}
	if err := g.input(resource, token); err != nil {
		return err
	}
	_, err := g.entered(ctx, tx, resource, token)
	return err
}

// entered also tells whether statements of the session commit by themselves, in MySQL.
func (g *Guard) entered(ctx context.Context, tx *sql.Tx, resource string, token uint64) (auto bool, err error) {
	var highest uint64
	switch g.dialect {
	case PostgreSQL:
		var ignored [2]sql.NullString
		err = tx.QueryRowContext(ctx, g.ask.Enter, []byte(resource), g.hold.Milliseconds()).Scan(&highest, &ignored[0], &ignored[1])
	case MySQL:
		seconds, most := int64(0), int64((g.hold+time.Second-1)/time.Second)
		err = tx.QueryRowContext(ctx, literal(g.ask.Enter, hexed([]byte(resource)))).Scan(&highest, &seconds, &auto)
		if err == nil && seconds > most {
			n := strconv.FormatInt(most, 10)
			_, err = tx.ExecContext(ctx, "SET SESSION wait_timeout = "+n+", SESSION net_write_timeout = "+n)
		}
	default:
		err = tx.QueryRowContext(ctx, g.ask.Enter, []byte(resource)).Scan(&highest)
	}
	if err == nil && highest != token && g.dialect == PostgreSQL {
		// The trigger must not take this transaction for one that has entered, if the caller goes on.
		_, err = tx.ExecContext(ctx, "SELECT set_config('redquorum.fence', '', true)")
	}
	if errors.Is(err, sql.ErrNoRows) && g.dialect == PostgreSQL { // or a greater token was announced
		if err = tx.QueryRowContext(ctx, g.ask.Announced, []byte(resource)).Scan(&highest); err == nil && highest <= token {
			err = sql.ErrNoRows
		}
	}
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && highest < token:
		return false, fmt.Errorf("%w: %d for %q", ErrNotClaimed, token, resource)
	case err != nil:
		return false, &fence.StepError{Step: fence.StepEnter, Resource: resource, Token: token, Err: because(ctx, err)}
	}
	return auto, fence.Admit(resource, highest, token)
}

// literal puts values where a statement has ?. A driver of MySQL would prepare a statement with arguments:
// two more round trips.
func literal(statement string, values ...string) string {
	for _, v := range values {
		statement = strings.Replace(statement, "?", v, 1)
	}
	return statement
}

// hexed is a literal of bytes.
func hexed(b []byte) string { return "X'" + hex.EncodeToString(b) + "'" }

func (g *Guard) input(resource string, token uint64) error {
	if len(resource) > MaxResource {
		return fmt.Errorf("%w: a name of %d bytes, not up to %d", ErrInput, len(resource), MaxResource)
	}
	return fence.CheckToken(resource, token)
}
