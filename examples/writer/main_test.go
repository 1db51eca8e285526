//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redquorum/redquorum/examples/internal/members"
	"github.com/redquorum/redquorum/internal/dbtest"
)

func TestAStaleWriteIsRefused(t *testing.T) {
	if err := dbtest.Postgres.Available(); err != nil {
		t.Skip(err)
	}
	server, err := dbtest.Postgres.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	db, err := sql.Open("pgx", fmt.Sprintf("host=%s user=postgres dbname=postgres sslmode=disable", server.Dir))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	starts, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for err = db.PingContext(starts); err != nil; err = db.PingContext(starts) {
		select {
		case <-starts.Done():
			t.Fatal(err)
		case <-retry.C:
		}
	}
	client, closed, err := members.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closed()
	if err := Run(t.Context(), client, db); err != nil {
		t.Fatal(err)
	}
	var value int
	if err := db.QueryRowContext(t.Context(), "SELECT value FROM counters").Scan(&value); err != nil || value != 2 {
		t.Errorf("%d visits, %v: want 2", value, err)
	}
}
