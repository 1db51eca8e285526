// Package fencesql is a guard for data in a SQL database, over database/sql: transactions of a holder
// that has been overtaken do not commit. It knows PostgreSQL, MySQL and MariaDB, and SQLite, and
// works with any driver.
//
// One table has a row for each lock name, with the greatest token that was claimed:
//
//	claim   raise the token, in a transaction of its own: it waits for those that have entered
//	enter   first in each transaction: lock the row against claims, and look whose token it has
//	write   in that transaction, as always
//
// Several transactions of one holder run side by side, except in SQLite, which has one writer.
//
//	guard, err := fencesql.New(db, fencesql.PostgreSQL)
//	err = locks.Mutex("invoice:42").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
//		return guard.Tx(ctx, nil, lease.Key(), lease.Token(), func(tx *sql.Tx) error { ... })
//	})
//
// Guard.Schema has the table for your migrations. Start at Guard.Tx, which does all three steps.
// Guard.Verify says what is wrong with a database. Guard.Trigger has a trigger for PostgreSQL that
// refuses writes of transactions that have not entered.
//
// # Isolation
//
// Whoever reads before the claim has returned can lose an update, at any level of isolation but those
// that say so themselves. Tx claims before it begins a transaction, so all its levels are safe. It
// refuses sql.LevelReadUncommitted, because such a transaction reads what may never be committed.
// If you begin transactions yourself, call Check before you begin them, and Enter first:
//
//	                            begun after the claim   begun and read before the claim
//	PostgreSQL read committed   right                   a lost update
//	           repeatable read  right                   error 40001
//	           serializable     right                   error 40001
//	MySQL      read committed   right                   a lost update
//	           repeatable read  right                   a lost update
//	           serializable     right                   waits, or error 1205 or 1213
//	SQLite     any              right                   SQLITE_BUSY
//
// The tests play each cell on PostgreSQL 15, also behind PgBouncer, MySQL 8.0, MariaDB 10.11, which
// has the same cells, and SQLite 3.
//
// # What the function may not do
//
// Tx acknowledges only the transaction that entered. In MySQL, MariaDB and SQLite a savepoint tells, at
// the cost of two statements. An error that matches ErrEnded says that the transaction was over before
// the commit. Then:
//
//   - PostgreSQL: a transaction in which a statement has failed does not commit, so nothing is written.
//     The function sends no COMMIT and no ROLLBACK: what comes after it is written. The drivers pgx and
//     lib/pq notice, and others may not.
//   - MySQL, MariaDB: after a deadlock nothing is written. After a statement that commits by itself, as
//     CREATE TABLE, what came before it is written, and the rest is rolled back, up to the last such
//     statement. For that Tx turns autocommit off, and on again afterwards: two statements more.
//   - SQLite: INSERT OR ROLLBACK, RAISE(ROLLBACK), a full disk or a context that ends one statement has
//     rolled back what came before. What came after is written, and may be over that of the next holder.
//
// So let the function return the error of each statement, and in MySQL contain none that commits.
//
// # A holder that stops inside a transaction
//
// It keeps its lock on the row, so the next claim waits. HoldTimeout bounds that: the server ends a
// transaction that asks nothing for so long, and its commit fails. SQLite has no server that could:
// there the claim waits until the process goes on or ends.
//
// A holder whose transactions overlap does not keep the next one out. In PostgreSQL a claim that has to
// wait is announced in a row of its own, whose key is the name and 1,025 zeros. From then on nobody
// enters with a smaller token. InnoDB has a queue. SQLite has none, so a claim asks each millisecond.
// Programs of an earlier version know no announcement: a claim waits for them as it did.
//
// A holder that stops while the server sends it rows is not idle. In MySQL and MariaDB the bound is the
// same. In PostgreSQL set tcp_user_timeout on the server, which ends such a connection over TCP.
// Without it the claim waits until the holder goes on, or an operator ends it (pg_terminate_backend).
// Read large results before the transaction, after the claim.
//
// # Durability
//
// A claim is worth what a commit is worth. PostgreSQL: fsync on; the claim itself turns
// synchronous_commit on. MySQL and MariaDB: innodb_flush_log_at_trx_commit = 1, which is the
// default. SQLite: synchronous = FULL or EXTRA, which is the default. A standby that takes over must
// have the claim, so let it be a synchronous one. Never delete a row of the table.
//
// Claims, entries and reads go to one server. A replica may lack the claim. In a cluster with several
// masters, as Galera, an entry locks its row at one master, and a claim at another does not wait.
package fencesql
