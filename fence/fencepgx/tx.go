package fencepgx

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

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
//     error of a statement, and nothing was written. If it matches ErrEnded, fn has ended the
//     transaction itself, and no guard has judged what came after that. Else the server may have
//     committed: call Check with the same token, which waits for that, and then read.
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
	vain := false // an entry has found no claim, whatever is remembered here
	once := func() error { return g.once(ctx, o, resource, token, vain || !g.known.Has(resource, token), fn) }
	err := repeat(ctx, once)
	if at := (*fence.StepError)(nil); locked(err) && errors.As(err, &at) && at.Step == fence.StepClaim { // by transactions that have entered
		if err = g.check(ctx, resource, token, false); err == nil {
			err = repeat(ctx, once)
		}
	}
	if inside := (*fence.StepError)(nil); errors.Is(err, ErrNotClaimed) && !errors.As(err, &inside) { // fn may enter another name
		vain = true
		err = repeat(ctx, once)
	}
	return err
}

// once is one transaction that enters. With claim, all that comes before fn is one batch: the claim commits
// in a transaction of its own, and only then the next one begins. So its snapshot is younger than the
// claim. An ErrNotClaimed that is in no StepError is that of the entry.
func (g *Guard) once(ctx context.Context, o pgx.TxOptions, resource string, token uint64, claim bool, fn func(tx pgx.Tx) error) error {
	failed := func(step fence.Step, err error) error {
		return &fence.StepError{Step: step, Resource: resource, Token: token, Err: err}
	}
	var b pgx.Batch
	steps := []fence.Step{fence.StepBegin}
	b.BeginTx(o)
	if claim { // the batch begins the transaction of the claim, and its Tx stands for the one after it
		begin := b.QueuedQueries[0].SQL
		b = pgx.Batch{}
		b.BeginTx(pgx.TxOptions{CommitQuery: o.CommitQuery})
		b.Queue(g.ask.Try, []byte(resource), int64(token))
		b.Queue("commit")
		b.Queue(begin)
		steps = []fence.Step{fence.StepBegin, fence.StepClaim, fence.StepClaim, fence.StepBegin}
	}
	b.Queue(g.ask.Enter, g.entry(resource)...)
	results := g.db.SendBatch(ctx, &b)
	tx := results.Tx()
	if tx == nil { // something around a pool that knows no transactions in batches
		_ = results.Close()
		return failed(fence.StepBegin, fmt.Errorf("%w: SendBatch of %T begins no transaction", ErrInput, g.db))
	}
	defer func() { _ = tx.Rollback(ctx) }()
	err := g.opened(results, steps, resource, token, failed)
	if closed := results.Close(); err == nil && closed != nil {
		err = failed(fence.StepEnter, closed)
	}
	err = g.overtaken(ctx, tx, resource, token, err)
	if claim && errors.Is(err, ErrNotClaimed) { // something undoes claims
		err = failed(fence.StepClaim, err)
	}
	if err != nil {
		return err
	}
	g.known.Add(resource, token)
	w := &watched{Tx: tx}
	err = fn(w)
	switch over := !w.closed && tx.Conn().PgConn().TxStatus() == 'I'; {
	case over:
		return failed(fence.StepCommit, errors.Join(fmt.Errorf("%w: by a statement; what came after that is written, and no guard has judged it", ErrEnded), err))
	case err != nil:
		return failed(fence.StepWrite, err)
	}
	if err := tx.Commit(ctx); errors.Is(err, pgx.ErrTxClosed) && w.closed {
		return failed(fence.StepCommit, fmt.Errorf("%w: the function has committed it or rolled it back: %w", ErrEnded, err))
	} else if err != nil {
		return failed(fence.StepCommit, err)
	}
	return nil
}

// watched is a transaction that tells whether the function has given its connection back.
type watched struct {
	pgx.Tx
	closed bool
}

func (w *watched) Commit(ctx context.Context) error   { w.closed = true; return w.Tx.Commit(ctx) }
func (w *watched) Rollback(ctx context.Context) error { w.closed = true; return w.Tx.Rollback(ctx) }

// opened reads the answers to the steps and to the entry. The server sends the first answer with the last one,
// so an error before it is that of the step that can wait.
func (g *Guard) opened(results pgx.BatchResults, steps []fence.Step, resource string, token uint64, failed func(fence.Step, error) error) error {
	for i, step := range steps {
		_, err := results.Exec()
		if err == nil {
			continue
		}
		if i == 0 && results.Tx().Conn() != nil {
			if step = fence.StepEnter; len(steps) > 1 {
				step = fence.StepClaim
			}
		}
		return failed(step, err)
	}
	return g.judge(resource, token, results.QueryRow())
}
