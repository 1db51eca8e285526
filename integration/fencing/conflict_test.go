//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/redquorum/redquorum/fence/fencesql"
)

// conflict is an error of the driver that says that the transaction is to be repeated.
func (d *database) conflict() error {
	switch d.dialect {
	case fencesql.PostgreSQL:
		return fmt.Errorf("insert: %w", &pgconn.PgError{Code: "40001"})
	case fencesql.MySQL:
		return fmt.Errorf("insert: %w", &mysql.MySQLError{Number: 1213})
	}
	return fmt.Errorf("insert: %w", busy{})
}

// busy is what drivers of SQLite have in common. The tests of isolation see those of modernc itself.
type busy struct{}

func (busy) Error() string { return "database is locked" }
func (busy) Code() int     { return 5 | 2<<8 }

// asks reports whether an error of the real driver asks for another try, as Tx understands it.
func (d *database) asks(err error) bool {
	calls := 0
	db, failed := d.open()
	if failed != nil {
		return false
	}
	defer db.Close()
	g, failed := fencesql.New(db, d.dialect)
	if failed != nil {
		return false
	}
	_ = g.Tx(context.Background(), nil, "asks", 1, func(*sql.Tx) error {
		if calls++; calls == 1 {
			return err
		}
		return nil
	})
	return calls == 2
}
