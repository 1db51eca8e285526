package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
)

// Two holders work on a balance in SQLite. The first one was overtaken while it slept, and its
// transaction does not commit. A program has the tokens from its leases.
func Example_sql() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "bank.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(2000)")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	guard, err := fencesql.New(db, fencesql.SQLite)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, statement := range append(guard.Schema(), "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", "INSERT INTO account VALUES (1, 100)") {
		if _, err := db.Exec(statement); err != nil {
			fmt.Println(err)
			return
		}
	}

	ctx := context.Background()
	pay := func(token uint64, amount int) error {
		return guard.Tx(ctx, nil, "account:1", token, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ? WHERE id = 1", amount)
			return err
		})
	}
	fmt.Println("holder 33 pays:", pay(33, 10))
	fmt.Println("holder 34 pays:", pay(34, 20))
	fmt.Println("holder 33 wakes up, and is refused:", errors.Is(pay(33, 40), fence.ErrStale))
	var balance int
	fmt.Println(db.QueryRow("SELECT balance FROM account").Scan(&balance), balance)
	// Output:
	// holder 33 pays: <nil>
	// holder 34 pays: <nil>
	// holder 33 wakes up, and is refused: true
	// <nil> 130
}
