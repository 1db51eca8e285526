package fencepgx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/internal/claims"
)

// MaxResource is the greatest length of a lock name, in bytes.
const MaxResource = fencesql.MaxResource

// The errors are those of package fencesql.
var (
	// ErrInput is matched by the error for an argument that cannot work. Nothing was asked.
	ErrInput = fencesql.ErrInput

	// ErrNotClaimed is matched by the error of Enter for a token that nobody has claimed. The caller
	// rolls back, and claims.
	ErrNotClaimed = fencesql.ErrNotClaimed

	// ErrEnded is matched by the error of Tx if its function has ended the transaction. Nothing is
	// acknowledged.
	ErrEnded = fencesql.ErrEnded

	// ErrUnfit is matched by the error of Verify for a database whose guard protects nothing.
	ErrUnfit = fencesql.ErrUnfit
)

// DB is a *pgxpool.Pool, a *pgx.Conn, a *pgxpool.Conn, or something around one of them. A pgx.Tx is
// none: a claim inside an open transaction protects nothing.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Guard is a fence.Guard in a table. It is as safe for concurrent use as its DB: over a pool it is,
// over a connection it is not.
//
// It is no fence.AtomicGuard: a write elsewhere could go on when the connection that holds the row
// has broken.
type Guard struct {
	db    DB
	table string
	hold  time.Duration
	ask   fencesql.Statements

	known claims.Known
}

var _ fence.Guard = (*Guard)(nil)

// Option is an option of New.
type Option func(*Guard)

// Table names the table, in place of redquorum_fence. The name may have a schema before it:
// "app.fence". It needs no quotes: ASCII letters, digits and underscores.
func Table(name string) Option { return func(g *Guard) { g.table = name } }

// HoldTimeout is for how long a transaction that has entered may ask nothing, before the server ends
// it: 30 s, unless this says otherwise; 1 ms to 24 h. It bounds how long a holder that stopped inside
// a transaction keeps the next one waiting.
func HoldTimeout(d time.Duration) Option { return func(g *Guard) { g.hold = d } }

// New returns the guard of a database. It asks the database nothing: Verify does.
//
// Errors: one that matches ErrInput.
func New(db DB, options ...Option) (*Guard, error) {
	g := &Guard{db: db, table: "redquorum_fence", hold: 30 * time.Second}
	for _, o := range options {
		o(g)
	}
	switch {
	case db == nil:
		return nil, fmt.Errorf("%w: nil DB", ErrInput)
	case g.table == "":
		return nil, fmt.Errorf("%w: table %q", ErrInput, g.table)
	case g.hold < time.Millisecond || g.hold > 24*time.Hour:
		return nil, fmt.Errorf("%w: HoldTimeout of %v, not 1 ms to 24 h", ErrInput, g.hold)
	}
	var err error
	if g.ask, err = fencesql.PostgreSQL.Statements(g.table); err != nil {
		return nil, err
	}
	return g, nil
}

// Schema returns the statements that make the table, for your migrations. They may be executed again.
func (g *Guard) Schema() []string { return append([]string(nil), g.ask.Schema...) }

// Trigger returns the statements that let PostgreSQL refuse each write to a table whose transaction has
// not entered: see fencesql.Guard.Trigger.
//
// Errors: one that matches ErrInput.
func (g *Guard) Trigger(table string, resources ...string) ([]string, error) {
	return fencesql.PostgreSQL.Trigger(g.table, table, resources...)
}

// Verify asks whether the guard can work: the table is there, and a claim survives a crash as far as
// the server's settings tell. Call it at the start of a service.
//
// Errors: a *fence.StepError with StepProbe. It matches ErrUnfit if the settings are wrong.
func (g *Guard) Verify(ctx context.Context) error {
	failed := func(err error) error {
		return &fence.StepError{Step: fence.StepProbe, Resource: g.table, Err: err}
	}
	var token *int64
	if err := g.db.QueryRow(ctx, "SELECT max(token) FROM "+g.table+" WHERE 1 = 0").Scan(&token); err != nil {
		return failed(err)
	}
	for _, statement := range g.ask.Verify {
		var wrong string
		if err := g.db.QueryRow(ctx, statement).Scan(&wrong); err != nil {
			return failed(err)
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
// or for a connection that is inside a transaction; or a *fence.StepError with StepClaim.
func (g *Guard) Check(ctx context.Context, resource string, token uint64) error {
	if err := g.input(resource, token); err != nil {
		return err
	}
	return g.check(ctx, resource, token, true)
}

// check claims. With settle it also waits for transactions of an equal token.
func (g *Guard) check(ctx context.Context, resource string, token uint64, settle bool) error {
	var highest int64
	err := repeat(ctx, func() (err error) {
		highest, err = g.claimed(ctx, []byte(resource), int64(token), settle)
		return err
	})
	if err == nil && uint64(highest) < token { // a trigger, or a replica that answers
		err = fmt.Errorf("%w: the database has %d after the claim", ErrNotClaimed, highest)
	}
	if err != nil {
		return &fence.StepError{Step: fence.StepClaim, Resource: resource, Token: token, Err: err}
	}
	if err = fence.Admit(resource, uint64(highest), token); err == nil {
		g.known.Add(resource, token)
	}
	return err
}

// claimed raises the token, and returns the greatest one. A statement alone commits when it has been
// executed.
func (g *Guard) claimed(ctx context.Context, resource []byte, token int64, settle bool) (highest int64, err error) {
	tag, err := g.db.Exec(ctx, g.ask.Try, resource, token)
	if locked(err) {
		if _, err = g.db.Exec(ctx, g.ask.Announce, resource, token); err == nil {
			tag, err = g.db.Exec(ctx, g.ask.Claim, resource, token)
		}
	}
	if err != nil || tag.RowsAffected() == 1 {
		return token, err
	}
	if settle {
		err = g.db.QueryRow(ctx, g.ask.Settle, resource, token).Scan(&highest)
	}
	if !settle || errors.Is(err, pgx.ErrNoRows) {
		err = g.db.QueryRow(ctx, g.ask.Current, resource).Scan(&highest)
	}
	return highest, err
}

// Enter is the first statement of a transaction that writes, for those who begin transactions
// themselves. When it returns nil, token is the greatest one, and stays it until the transaction
// ends. Call Check before the transaction begins: see Isolation in package fencesql. On any error
// the caller rolls back at once, because the transaction may block claims.
//
// Errors: those of fence.Guard for the token; one that matches ErrNotClaimed if token is above the
// greatest one, or ErrInput; or a *fence.StepError with StepEnter.
func (g *Guard) Enter(ctx context.Context, tx pgx.Tx, resource string, token uint64) error {
	if tx == nil {
		return fmt.Errorf("%w: nil pgx.Tx", ErrInput)
	}
	if err := named(resource, token); err != nil {
		return err
	}
	err := g.overtaken(ctx, tx, resource, token, g.judge(resource, token, tx.QueryRow(ctx, g.ask.Enter, g.entry(resource)...)))
	if errors.Is(err, fence.ErrStale) || errors.Is(err, ErrNotClaimed) {
		// The trigger must not take this transaction for one that has entered, if the caller goes on.
		if _, undo := tx.Exec(ctx, "SELECT set_config('redquorum.fence', '', true)"); undo != nil {
			return &fence.StepError{Step: fence.StepEnter, Resource: resource, Token: token, Err: errors.Join(undo, err)}
		}
	}
	return err
}

// entry are the arguments of the entry.
func (g *Guard) entry(resource string) []any {
	return []any{[]byte(resource), g.hold.Milliseconds()}
}

// judge reads the answer to an entry.
func (g *Guard) judge(resource string, token uint64, row pgx.Row) error {
	var highest int64
	switch err := row.Scan(&highest, nil, nil); {
	case errors.Is(err, pgx.ErrNoRows), err == nil && uint64(highest) < token:
		return fmt.Errorf("%w: %d for %q", ErrNotClaimed, token, resource)
	case err != nil:
		return &fence.StepError{Step: fence.StepEnter, Resource: resource, Token: token, Err: err}
	}
	return fence.Admit(resource, uint64(highest), token)
}

// overtaken looks why an entry has no row: a greater token may have been announced.
func (g *Guard) overtaken(ctx context.Context, tx pgx.Tx, resource string, token uint64, err error) error {
	if !errors.Is(err, ErrNotClaimed) {
		return err
	}
	var highest int64
	switch failed := tx.QueryRow(ctx, g.ask.Announced, []byte(resource)).Scan(&highest); {
	case failed == nil && uint64(highest) > token:
		return fence.Admit(resource, uint64(highest), token)
	case failed == nil || errors.Is(failed, pgx.ErrNoRows):
		return err
	default:
		return &fence.StepError{Step: fence.StepEnter, Resource: resource, Token: token, Err: failed}
	}
}

func named(resource string, token uint64) error {
	if len(resource) > MaxResource {
		return fmt.Errorf("%w: a name of %d bytes, not up to %d", ErrInput, len(resource), MaxResource)
	}
	return fence.CheckToken(resource, token)
}

// input is named, and a look at the connection: a claim in a transaction that is open already would be
// undone with it, and a commit here would be that of its owner.
func (g *Guard) input(resource string, token uint64) error {
	if err := named(resource, token); err != nil {
		return err
	}
	var conn *pgx.Conn
	switch db := g.db.(type) {
	case *pgx.Conn:
		conn = db
	case interface{ Conn() *pgx.Conn }:
		conn = db.Conn()
	}
	if conn != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		return fmt.Errorf("%w: the connection is inside a transaction", ErrInput)
	}
	return nil
}

// locked reports whether the server says that a lock is not free.
func locked(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "55P03"
}

// again reports whether the server says that the transaction did not happen and is to be repeated:
// after a serialization failure or a deadlock.
func again(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && (e.Code == "40001" || e.Code == "40P01")
}

// repeat calls f until it returns what the server does not want repeated.
func repeat(ctx context.Context, f func() error) error {
	return claims.Repeat(ctx, 64*time.Millisecond, again, f)
}
