// Package fencepgx is a guard for data in PostgreSQL, over pgx v5: transactions of a holder that has
// been overtaken do not commit. It is fencesql for those who use pgx without database/sql. Both have
// one table and one set of statements, so programs with either share a database.
//
//	guard, err := fencepgx.New(pool)
//	err = locks.Mutex("invoice:42").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
//		return guard.Tx(ctx, pgx.TxOptions{}, lease.Key(), lease.Token(), func(tx pgx.Tx) error { ... })
//	})
//
// Start at Guard.Tx, which claims, enters and commits. BEGIN and the entry travel in one batch, the
// claim before them too. So a transaction takes as many round trips as one without a fence. The
// first one of a holder waits for two commits, because the claim is one.
//
// Guard.Schema has the table for your migrations. Guard.Verify says what is wrong with a database.
// Guard.Trigger has a trigger that refuses writes of transactions that have not entered.
//
// What package fencesql says about PostgreSQL holds here too: isolation, a holder that stops inside a
// transaction, durability. The tests play the cells of its table with pgx on PostgreSQL 15.
//
// It is a module of its own because of pgx. It needs pgx v5.12, the first one whose batches begin
// transactions.
package fencepgx
