package fencepgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redquorum/redquorum/fence"
)

// Tx runs fn in a transaction that has entered under token, and commits it, as pgx.BeginTxFunc does. If
// the token has not been claimed, Tx claims first. If the server says that the transaction is to be
// repeated, as after a deadlock, Tx begins anew and calls fn again, until ctx ends. So fn does
// nothing that cannot be repeated, and reads again what it has read.
//
// The isolation must not be pgx.ReadUncommitted, the access mode not pgx.ReadOnly. With a
// BeginQuery of your own, both are yours to keep.
//
// Errors:
//   - those of fence.Guard for the token, and ErrInput. Nothing was written.
//   - a *fence.StepError with StepClaim, StepBegin or StepEnter. Nothing was written.
//   - a *fence.StepError with StepWrite, whose Err is that of fn. Nothing was written.
//   - a *fence.StepError with StepCommit. If it matches pgx.ErrTxCommitRollback, fn has passed over an
//     error of a statement, and nothing was written. If it matches pgx.ErrTxClosed, fn has ended the
//     transaction itself. Else the server may have committed: read, under the same token.
//
// If fn panics, Tx rolls back, and the panic goes on.
func (g *Guard) Tx(ctx context.Context, o pgx.TxOptions, resource string, token uint64, fn func(tx pgx.Tx) error) error {
	if err := g.input(resource, token); err != nil {
		return err
	}
	switch {
	case fn == nil:
		return fmt.Errorf("%w: nil function", ErrInput)
	case o.IsoLevel == pgx.ReadUncommitted:
		return fmt.Errorf("%w: isolation %v", ErrInput, o.IsoLevel)
	case o.AccessMode == pgx.ReadOnly:
		return fmt.Errorf("%w: a read-only transaction cannot enter; to read, claim", ErrInput)
	}
	return repeat(ctx, func() error { return g.once(ctx, o, resource, token, fn) })
}

// once is one transaction that enters.
func (g *Guard) once(ctx context.Context, o pgx.TxOptions, resource string, token uint64, fn func(tx pgx.Tx) error) error {
	failed := func(step fence.Step, err error) error {
		return &fence.StepError{Step: step, Resource: resource, Token: token, Err: err}
	}
	var b pgx.Batch
	b.BeginTx(o)
	begin := b.QueuedQueries[0].SQL
	b.Queue(g.ask.Enter, g.entry(resource)...)
	results := g.db.SendBatch(ctx, &b)
	tx := results.Tx()
	if tx == nil { // something around a pool that knows no transactions in batches
		_ = results.Close()
		return failed(fence.StepBegin, fmt.Errorf("%w: SendBatch of %T begins no transaction", ErrInput, g.db))
	}
	defer func() { _ = tx.Rollback(ctx) }()
	_, err := results.Exec()
	if err != nil {
		step := fence.StepBegin
		if answer := (*pgconn.PgError)(nil); errors.As(err, &answer) {
			step = fence.StepEnter // the server has looked at both
		}
		err = failed(step, err)
	} else {
		err = g.judge(resource, token, results.QueryRow())
	}
	if closed := results.Close(); err == nil && closed != nil {
		err = failed(fence.StepEnter, closed)
	}
	if errors.Is(err, ErrNotClaimed) {
		err = g.late(ctx, tx, begin, resource, token, failed)
	}
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return failed(fence.StepWrite, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return failed(fence.StepCommit, err)
	}
	return nil
}

// late claims, and enters again, in one batch: the transaction that has found no claim ends, the claim
// commits in one of its own, and only then the next one begins. So its snapshot is younger than the
// claim. tx stands for the last of the three.
func (g *Guard) late(ctx context.Context, tx pgx.Tx, begin, resource string, token uint64, failed func(fence.Step, error) error) error {
	var b pgx.Batch
	b.Queue("rollback")
	b.Queue("begin")
	b.Queue(g.ask.Claim, []byte(resource), int64(token))
	b.Queue("commit")
	b.Queue(begin)
	b.Queue(g.ask.Enter, g.entry(resource)...)
	results := tx.SendBatch(ctx, &b)
	for i := range b.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			if i < 4 {
				return failed(fence.StepClaim, err)
			}
			return failed(fence.StepBegin, err)
		}
	}
	err := g.judge(resource, token, results.QueryRow())
	if closed := results.Close(); err == nil && closed != nil {
		return failed(fence.StepEnter, closed)
	}
	if errors.Is(err, ErrNotClaimed) { // something undoes claims
		return failed(fence.StepClaim, err)
	}
	return err
}
