// Command writer adds to a counter in PostgreSQL under a lock, and shows its token to the database. A
// holder that sleeps until its lease is over writes too late, and the database refuses it.
//
//	eval "$(redlock nodes up)"      # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/writer -postgres "host=/var/run/postgresql user=postgres sslmode=disable"
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/redlock"
)

func main() {
	redis := flag.String("redis", os.Getenv("REDLOCK_MEMBERS"), "URLs of independent Redis masters, as redis://a,redis://b,redis://c")
	source := flag.String("postgres", "", "the database, as host=… user=… dbname=…")
	flag.Parse()
	if *source == "" {
		log.Fatal("give a database: -postgres \"host=… user=… dbname=…\"; it gets the tables counters and one of package fencesql")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := redlock.Open(ctx, strings.Split(*redis, ","))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	db, err := sql.Open("pgx", *source)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := Run(ctx, client, db); err != nil {
		log.Print(err)
	}
}

// Run adds twice, and then has a holder that was overtaken try it.
func Run(ctx context.Context, client *redlock.Client, db *sql.DB) error {
	guard, err := fencesql.New(db, fencesql.PostgreSQL)
	if err != nil {
		return err
	}
	schema := append(guard.Schema(), // in a service: in your migrations
		"CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
		"INSERT INTO counters VALUES ('visits', 0) ON CONFLICT DO NOTHING")
	for _, statement := range schema {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	var overtaken uint64
	for range 2 {
		err := client.Mutex("counter:visits").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
			if overtaken == 0 {
				overtaken = lease.Token()
			}
			return Add(ctx, guard, lease.Key(), lease.Token())
		})
		if err != nil {
			return err
		}
	}
	err = Add(ctx, guard, "counter:visits", overtaken) // a process that slept through the end of its lease
	if !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a stale write was not refused: %v", err)
	}
	fmt.Printf("token %d is refused: %v\n", overtaken, err)
	return nil
}

// Add reads, computes and writes in one transaction, which commits only if no later holder has claimed.
func Add(ctx context.Context, guard *fencesql.Guard, name string, token uint64) error {
	return guard.Tx(ctx, nil, name, token, func(tx *sql.Tx) error {
		var value int
		if err := tx.QueryRowContext(ctx, "SELECT value FROM counters WHERE name = 'visits'").Scan(&value); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE counters SET value = $1 WHERE name = 'visits'", value+1); err != nil {
			return err
		}
		fmt.Printf("%d with token %d\n", value+1, token)
		return nil
	})
}
