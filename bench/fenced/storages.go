//go:build unix

package fenced

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/redquorum/redquorum/fence/fencepgx"
	"github.com/redquorum/redquorum/fence/fenceredis"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/internal/dbtest"
	"github.com/redquorum/redquorum/internal/redistest"
)

// storage is one row of the table: each function adds 1 to a total that it reads.
type storage struct {
	bare  func(ctx context.Context) error
	under func(ctx context.Context, token uint64) error // the same under a fence
	claim func(ctx context.Context, token uint64) error // of another name
	trips *trips
	close func()
}

// storages are all of them, or why one cannot run here.
var storages = []struct {
	name string
	open func(ctx context.Context) (*storage, error)
}{
	{"PostgreSQL, database/sql", postgresSQL},
	{"PostgreSQL, pgx", postgresPgx},
	{"MariaDB, database/sql", mariadb},
	{"SQLite, database/sql", sqlite},
	{"Redis, appendfsync always", redisServer},
}

const (
	lock  = "invoice:42"
	other = "invoice:43"
)

// server starts a database on the disk.
func server(ctx context.Context, kind dbtest.Kind) (*dbtest.Server, func(), error) {
	if err := kind.Available(); err != nil {
		return nil, nil, err
	}
	s, err := kind.StartIn(ctx, dbtest.Disk())
	if err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil
}

// answers waits until a server that has started answers.
func answers(ctx context.Context, ping func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := ping(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-pause.C:
		}
	}
}

const (
	table    = "CREATE TABLE invoices (id BIGINT PRIMARY KEY, total BIGINT NOT NULL)"
	row      = "INSERT INTO invoices VALUES (42, 0)"
	readPG   = "SELECT total FROM invoices WHERE id = $1 FOR UPDATE"
	writePG  = "UPDATE invoices SET total = $1 WHERE id = $2"
	readMy   = "SELECT total FROM invoices WHERE id = ? FOR UPDATE"
	readLite = "SELECT total FROM invoices WHERE id = ?"
	writeMy  = "UPDATE invoices SET total = ? WHERE id = ?"
)

// overSQL is a storage over database/sql, with one connection.
func overSQL(ctx context.Context, db *sql.DB, dialect fencesql.Dialect, read, write string, t *trips, end func()) (*storage, error) {
	s := &storage{trips: t, close: func() { _ = db.Close(); end() }}
	fail := func(err error) (*storage, error) { s.close(); return nil, err }
	db.SetMaxOpenConns(1)
	if err := answers(ctx, db.PingContext); err != nil {
		return fail(err)
	}
	guard, err := fencesql.New(db, dialect)
	if err != nil {
		return fail(err)
	}
	for _, statement := range append(guard.Schema(), table, row) {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fail(err)
		}
	}
	if err := guard.Verify(ctx); err != nil {
		return fail(err)
	}
	work := func(ctx context.Context, tx *sql.Tx) error {
		var total int64
		if err := tx.QueryRowContext(ctx, read, 42).Scan(&total); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, write, total+1, 42)
		return err
	}
	s.bare = func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := work(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}
	s.under = func(ctx context.Context, token uint64) error {
		return guard.Tx(ctx, nil, lock, token, func(tx *sql.Tx) error { return work(ctx, tx) })
	}
	s.claim = func(ctx context.Context, token uint64) error { return guard.Check(ctx, other, token) }
	return s, nil
}

func sourcePG(s *dbtest.Server) string {
	return fmt.Sprintf("host=%s user=postgres dbname=postgres sslmode=disable", s.Dir)
}

func postgresSQL(ctx context.Context) (*storage, error) {
	s, end, err := server(ctx, dbtest.Postgres)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(sourcePG(s))
	if err != nil {
		end()
		return nil, err
	}
	t := new(trips)
	config.DialFunc = t.dial
	return overSQL(ctx, stdlib.OpenDB(*config), fencesql.PostgreSQL, readPG, writePG, t, end)
}

func postgresPgx(ctx context.Context) (*storage, error) {
	server, end, err := server(ctx, dbtest.Postgres)
	if err != nil {
		return nil, err
	}
	s := &storage{trips: new(trips), close: end}
	fail := func(err error) (*storage, error) { s.close(); return nil, err }
	config, err := pgxpool.ParseConfig(sourcePG(server))
	if err != nil {
		return fail(err)
	}
	config.MaxConns, config.ConnConfig.DialFunc = 1, s.trips.dial
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fail(err)
	}
	s.close = func() { pool.Close(); end() }
	if err := answers(ctx, pool.Ping); err != nil {
		return fail(err)
	}
	guard, err := fencepgx.New(pool)
	if err != nil {
		return fail(err)
	}
	for _, statement := range append(guard.Schema(), table, row) {
		if _, err := pool.Exec(ctx, statement); err != nil {
			return fail(err)
		}
	}
	work := func(ctx context.Context, tx pgx.Tx) error {
		var total int64
		if err := tx.QueryRow(ctx, readPG, 42).Scan(&total); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, writePG, total+1, 42)
		return err
	}
	s.bare = func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return work(ctx, tx) })
	}
	s.under = func(ctx context.Context, token uint64) error {
		return guard.Tx(ctx, pgx.TxOptions{}, lock, token, func(tx pgx.Tx) error { return work(ctx, tx) })
	}
	s.claim = func(ctx context.Context, token uint64) error { return guard.Check(ctx, other, token) }
	return s, nil
}

func mariadb(ctx context.Context) (*storage, error) {
	s, end, err := server(ctx, dbtest.MariaDB)
	if err != nil {
		return nil, err
	}
	t := new(trips)
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr, config.DBName, config.Logger = "root", "unix", s.Socket(), "mysql", &mysql.NopLogger{}
	config.DialFunc = t.dial
	connector, err := mysql.NewConnector(config)
	if err != nil {
		end()
		return nil, err
	}
	return overSQL(ctx, sql.OpenDB(connector), fencesql.MySQL, readMy, writeMy, t, end)
}

func sqlite(ctx context.Context) (*storage, error) {
	dir, err := os.MkdirTemp("", "bench-sqlite-")
	if err != nil {
		return nil, err
	}
	end := func() { _ = os.RemoveAll(dir) }
	file := url.URL{Path: filepath.Join(dir, "data.db")}
	db, err := sql.Open("sqlite", "file:"+file.EscapedPath()+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		end()
		return nil, err
	}
	return overSQL(ctx, db, fencesql.SQLite, readLite, writeMy, nil, end)
}

func redisServer(ctx context.Context) (*storage, error) {
	if err := redistest.Available(); err != nil {
		return nil, err
	}
	server, err := redistest.StartReal(ctx, redistest.RealConfig{Persist: redistest.AppendAlways})
	if err != nil {
		return nil, err
	}
	s := &storage{trips: new(trips)}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		return s.trips.dial(ctx, network, addr)
	}})
	s.close = func() { _ = client.Close(); _ = server.Close() }
	guard := fenceredis.New(func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		words := make([]any, len(args))
		for i, word := range args {
			words[i] = word
		}
		return client.Eval(ctx, script, keys, words...).Result()
	})
	const total = "{" + lock + "}:total"
	plusOne := func(ctx context.Context, set func(value string) error) error {
		value, err := client.Get(ctx, total).Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		return set(strconv.FormatInt(value+1, 10))
	}
	s.bare = func(ctx context.Context) error {
		return plusOne(ctx, func(value string) error { return client.Set(ctx, total, value, 0).Err() })
	}
	s.under = func(ctx context.Context, token uint64) error {
		return plusOne(ctx, func(value string) error {
			_, err := guard.Run(ctx, lock, token, []string{total}, "SET", total, value)
			return err
		})
	}
	s.claim = func(ctx context.Context, token uint64) error { return guard.Check(ctx, other, token) }
	return s, nil
}
