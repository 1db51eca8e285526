package fencesql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/internal/claims"
)

// Tx runs fn in a transaction that has entered under token, and commits it. If the token has not been
// claimed, Tx claims first. If the server says that the transaction is to be repeated, as after a
// deadlock, Tx begins anew and calls fn again, until ctx ends. So fn does nothing that cannot be
// repeated, and reads again what it has read. It wraps errors of the server with %w: behind %v Tx does not
// see that the transaction is to be repeated. "What the function may not do" in the package comment has
// the rest.
//
// o is what BeginTx takes, or nil. The isolation must not be below sql.LevelReadCommitted.
//
// Errors:
//   - those of fence.Guard for the token, and ErrInput. Nothing was written.
//   - a *fence.StepError with StepClaim, StepBegin or StepEnter. Nothing was written.
//   - a *fence.StepError with StepWrite, whose Err is that of fn, with the context's if that has
//     ended. Nothing was written.
//   - a *fence.StepError with StepCommit. The server may have committed, or may still do. So call Check
//     with the same token, which waits for that, and then read. If it matches ErrEnded, the transaction
//     that had entered was over before the commit, and Err has the error of fn, too.
//
// If fn panics, Tx rolls back, and the panic goes on.
func (g *Guard) Tx(ctx context.Context, o *sql.TxOptions, resource string, token uint64, fn func(tx *sql.Tx) error) error {
	if err := g.input(resource, token); err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("%w: nil function", ErrInput)
	}
	if o != nil && o.Isolation == sql.LevelReadUncommitted {
		return fmt.Errorf("%w: isolation %v", ErrInput, o.Isolation)
	}
	if o != nil && o.ReadOnly {
		return fmt.Errorf("%w: a read-only transaction cannot enter; to read, claim", ErrInput)
	}
	for known := g.known.Has(resource, token); ; known = false {
		if !known {
			if err := g.check(ctx, resource, token, false); err != nil {
				return err
			}
		}
		err := claims.Repeat(ctx, 64*time.Millisecond, g.dialect.again, func() error { return g.once(ctx, o, resource, token, fn) })
		if inside := (*fence.StepError)(nil); !errors.Is(err, ErrNotClaimed) || errors.As(err, &inside) { // fn may enter another name
			return err
		}
	}
}

// once is one transaction that enters.
func (g *Guard) once(ctx context.Context, o *sql.TxOptions, resource string, token uint64, fn func(tx *sql.Tx) error) error {
	failed := func(step fence.Step, err error) error {
		return &fence.StepError{Step: step, Resource: resource, Token: token, Err: err}
	}
	return g.transaction(ctx, false, o, failed, func(s *session) error {
		auto, err := g.entered(ctx, s.tx, resource, token)
		if err != nil {
			return err
		}
		if err := s.mark(ctx, g.dialect, auto); err != nil {
			return failed(fence.StepEnter, because(ctx, err))
		}
		err = fn(s.tx)
		if err != nil && g.dialect.again(err) {
			return failed(fence.StepWrite, because(ctx, err))
		}
		proof := s.prove(ctx, g.dialect)
		switch {
		case err != nil && errors.Is(proof, ErrEnded) && !errors.Is(proof, sql.ErrTxDone):
			return failed(fence.StepCommit, errors.Join(err, proof))
		case err != nil:
			return failed(fence.StepWrite, because(ctx, err))
		case proof != nil:
			return failed(fence.StepCommit, because(ctx, proof))
		}
		return nil
	})
}

// session is a connection with a transaction.
type session struct {
	conn *sql.Conn
	tx   *sql.Tx
	auto bool // MySQL: autocommit is to be turned on again

	patient func() // makes the connection one that waits again
}

// point is a savepoint that lives as long as the transaction that has entered.
const point = "redquorum_entered"

// mark makes the transaction one that prove knows. In MySQL it also sees to it that no statement after its end
// commits by itself. PostgreSQL needs neither: there a transaction that has failed takes no statements, and does not
// commit.
func (s *session) mark(ctx context.Context, d Dialect, auto bool) error {
	if d == PostgreSQL {
		return nil
	}
	if d == MySQL && auto {
		if _, err := s.tx.ExecContext(ctx, "SET autocommit = 0"); err != nil {
			return err
		}
		s.auto = true
	}
	_, err := s.tx.ExecContext(ctx, "SAVEPOINT "+point)
	return err
}

// prove fails if what a commit would commit is not the transaction that mark has seen.
func (s *session) prove(ctx context.Context, d Dialect) error {
	if d == PostgreSQL { // only the function can have ended it
		over := false
		_ = s.conn.Raw(func(conn any) error { over = idle(conn); return nil })
		if !over || ctx.Err() != nil {
			return nil
		}
		if err := s.tx.Rollback(); errors.Is(err, sql.ErrTxDone) {
			return d.ended(ctx, err)
		}
		return fmt.Errorf("%w: by a statement; what came after that is written, and no guard has judged it", ErrEnded)
	}
	_, err := s.tx.ExecContext(ctx, "RELEASE SAVEPOINT "+point)
	return d.ended(ctx, err)
}

// idle reports whether a connection of pgx knows that it is in no transaction. That of lib/pq fails to commit then.
func idle(conn any) bool {
	v := reflect.ValueOf(conn)
	for _, name := range []string{"Conn", "PgConn", "TxStatus"} {
		m := v.MethodByName(name)
		if !m.IsValid() || m.Type().NumIn() != 0 || m.Type().NumOut() != 1 {
			return false
		}
		v = m.Call(nil)[0]
	}
	return v.CanUint() && v.Uint() == 'I'
}

// leave ends the transaction, if it has not been committed, and gives the connection back as it was.
func (s *session) leave(ctx context.Context, committed bool) {
	defer s.conn.Close()
	if !committed {
		_ = s.tx.Rollback()
	}
	s.patient()
	if !s.auto {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var err error
	if !committed { // database/sql may not have come to it, and to turn autocommit on commits
		_, err = s.conn.ExecContext(ctx, "ROLLBACK")
	}
	if err == nil {
		_, err = s.conn.ExecContext(ctx, "SET autocommit = 1")
	}
	if err != nil {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // nobody gets this connection again
	}
}

// impatient makes a connection to SQLite fail at once in place of waiting for the one writer, until the function that
// it returns is called. SQLite has no queue, and asks seldom when it has waited for long: a claim would find the moment
// between two transactions of an overtaken holder by chance.
func impatient(ctx context.Context, conn *sql.Conn) (patient func()) {
	var usual int
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&usual); err != nil || usual == 0 {
		return func() {}
	}
	set := func(n int) {
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA busy_timeout = "+strconv.Itoa(n))
	}
	set(0)
	return func() { set(usual) }
}

// transaction runs fn in a transaction. It returns the error of fn as it is, and others as failed makes
// them.
func (g *Guard) transaction(ctx context.Context, claim bool, o *sql.TxOptions, failed func(fence.Step, error) error, fn func(*session) error) error {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return failed(fence.StepBegin, because(ctx, err))
	}
	patient := func() {}
	if claim && g.dialect == SQLite {
		patient = impatient(ctx, conn)
	}
	tx, err := conn.BeginTx(ctx, o)
	if err != nil {
		patient()
		_ = conn.Close()
		return failed(fence.StepBegin, because(ctx, err))
	}
	s, committed := &session{conn: conn, tx: tx, patient: patient}, false
	defer func() { s.leave(ctx, committed) }()
	if err := fn(s); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if g.dialect == SQLite { // a COMMIT that finds readers leaves the transaction open
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
		return failed(fence.StepCommit, because(ctx, g.dialect.ended(ctx, err)))
	}
	committed = true
	return nil
}
