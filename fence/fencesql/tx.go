package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Tx runs fn in a transaction that has entered under token, and commits it. If the token has not been
// claimed, Tx claims first. If the server says that the transaction is to be repeated, as after a
// deadlock, Tx begins anew and calls fn again, until ctx ends. So fn does nothing that cannot be
// repeated, and reads again what it has read.
//
// o is what BeginTx takes, or nil. The isolation must not be below sql.LevelReadCommitted.
//
// Errors:
//   - those of fence.Guard for the token, and ErrInput. Nothing was written.
//   - a *fence.StepError with StepClaim, StepBegin or StepEnter. Nothing was written.
//   - a *fence.StepError with StepWrite, whose Err is that of fn, with the context's if that has
//     ended. Nothing was written.
//   - a *fence.StepError with StepCommit. The server may have committed, or may still do. So call Check
//     with the same token, which waits for that, and then read.
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
	for known := g.claims.has(resource, token); ; known = false {
		if !known {
			if err := g.Check(ctx, resource, token); err != nil {
				return err
			}
		}
		err := g.repeat(ctx, func() error { return g.once(ctx, o, resource, token, fn) })
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
	return g.transaction(ctx, o, failed, func(tx *sql.Tx) error {
		if err := g.Enter(ctx, tx, resource, token); err != nil {
			return err
		}
		if err := fn(tx); err != nil {
			return failed(fence.StepWrite, because(ctx, err))
		}
		return nil
	})
}

// transaction runs fn in a transaction. It returns the error of fn as it is, and others as failed makes
// them.
func (g *Guard) transaction(ctx context.Context, o *sql.TxOptions, failed func(fence.Step, error) error, fn func(tx *sql.Tx) error) error {
	conn, err := g.db.Conn(ctx)
	if err != nil {
		return failed(fence.StepBegin, because(ctx, err))
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, o)
	if err != nil {
		return failed(fence.StepBegin, because(ctx, err))
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		if g.dialect == SQLite { // a COMMIT that finds readers leaves the transaction open
			_, _ = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		}
		return failed(fence.StepCommit, because(ctx, err))
	}
	return nil
}
