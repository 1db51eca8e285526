//go:build linux || darwin

package fencing

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence/fencefile"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// stores are storages that several processes share, by kind: each opens one where the parent has put it.
var stores = map[string]func(t testing.TB, at string) fencetest.Fixture{
	"file": openFiles, "SQLite": openSQL("sqlite", fencesql.SQLite),
	"PostgreSQL": openSQL("pgx", fencesql.PostgreSQL), "MariaDB": openSQL("mysql", fencesql.MySQL),
}

// places make these storages, and say where they are. They end with the test.
var places = map[string]func(t testing.TB) string{
	"file":       func(t testing.TB) string { return t.TempDir() },
	"SQLite":     func(t testing.TB) string { return placeSQL(t, sqlite(t)) },
	"PostgreSQL": func(t testing.TB) string { return placeSQL(t, postgres(t)) },
	"MariaDB":    func(t testing.TB) string { return placeSQL(t, mariadb(t)) },
}

func placeSQL(t testing.TB, d *database) string {
	d.guard(t, d.connect(t))
	return d.source
}

func openSQL(driver string, dialect fencesql.Dialect) func(t testing.TB, at string) fencetest.Fixture {
	return func(t testing.TB, at string) fencetest.Fixture {
		d := &database{dialect: dialect, open: func() (*sql.DB, error) { return sql.Open(driver, at) }}
		db := d.connect(t)
		g := rt.Must(fencesql.New(db, dialect))(t)
		require.NoError(t, g.Verify(t.Context()))
		return fencetest.Fixture{Guard: g, Storage: rows{d, db, g}}
	}
}

type files struct {
	guard *fencefile.Guard
	dir   string
}

func openFiles(t testing.TB, at string) fencetest.Fixture {
	g := rt.Must(fencefile.Open(filepath.Join(at, "guard")))(t)
	return fencetest.Fixture{Guard: g, Storage: files{g, at}}
}

func (f files) name(resource string) string {
	return filepath.Join(f.dir, hex.EncodeToString([]byte(resource)))
}

func (f files) Get(_ context.Context, resource string) (string, error) {
	content, err := os.ReadFile(f.name(resource))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(content), err
}

func (f files) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	return f.guard.WriteFile(ctx, resource, token, f.name(resource), []byte(value), 0o600)
}

func (f files) Overwrite(_ context.Context, resource, value string) error {
	tmp, err := os.CreateTemp(f.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(value)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.name(resource))
}
