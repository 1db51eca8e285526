//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite"

	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/dbtest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func init() { _ = mysql.SetLogger(silent{}) } // it tells of each connection that a crash has cut

type silent struct{}

func (silent) Print(...any) {}

// database is a server with an empty database, and how a program connects to it.
type database struct {
	dialect fencesql.Dialect
	open    func() (*sql.DB, error)
	restart func() error // as after kill -9
	source  string       // what open gives the driver
}

func each(t *testing.T, test func(t *testing.T, d *database)) {
	for name, start := range map[string]func(testing.TB) *database{"PostgreSQL": postgres, "PgBouncer": pgbouncer, "MariaDB": mariadb, "MySQL": mysql8, "SQLite": sqlite} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

// shared is a server for all tests, one after the other: to make one takes a second or two.
type shared struct {
	kind  dbtest.Kind
	users sync.Mutex
	once  sync.Once
	s     *dbtest.Server
	err   error
}

var (
	oneOfPostgres = &shared{kind: dbtest.Postgres}
	oneOfMariaDB  = &shared{kind: dbtest.MariaDB}
	oneOfMySQL    = &shared{kind: dbtest.MySQL("mysql/target")}
)

func (s *shared) take(t testing.TB) *dbtest.Server {
	if err := s.kind.Available(); err != nil {
		t.Skip(err)
	}
	s.users.Lock()
	t.Cleanup(s.users.Unlock)
	s.once.Do(func() { s.s, s.err = s.kind.Start(context.Background()) })
	require.NoError(t, s.err)
	return s.s
}

func TestMain(m *testing.M) {
	m.Run()
	for _, s := range []*shared{oneOfPostgres, oneOfMariaDB, oneOfMySQL, oneOfVersityGW, oneOfEtcd, oneOfDynamoDB} {
		if s.s != nil {
			_ = s.s.Close()
		}
	}
}

var databases atomic.Int64

func postgres(t testing.TB) *database {
	s := oneOfPostgres.take(t)
	source := func(name string) string {
		return fmt.Sprintf("host=%s user=postgres dbname=%s sslmode=disable", s.Dir, name)
	}
	name := fmt.Sprint("test", databases.Add(1))
	created(t, "pgx", source("postgres"), "CREATE DATABASE "+name)
	return &database{fencesql.PostgreSQL, func() (*sql.DB, error) { return sql.Open("pgx", source(name)) }, s.Restart, source(name)}
}

// pgbouncer is PostgreSQL behind one. A connection has another server's connection in each transaction.
func pgbouncer(t testing.TB) *database {
	d := postgres(t)
	kind := dbtest.PgBouncer(oneOfPostgres.s)
	if err := kind.Available(); err != nil {
		t.Skip(err)
	}
	s := rt.Must(kind.Start(t.Context()))(t)
	t.Cleanup(func() { _ = s.Close() })
	source := strings.Replace(d.source, "host="+oneOfPostgres.s.Dir, "host="+s.Dir+" port=6432 default_query_exec_mode=exec", 1)
	return &database{fencesql.PostgreSQL, func() (*sql.DB, error) { return sql.Open("pgx", source) }, d.restart, source}
}

func mariadb(t testing.TB) *database { return ofMySQL(t, oneOfMariaDB) }
func mysql8(t testing.TB) *database  { return ofMySQL(t, oneOfMySQL) }

func ofMySQL(t testing.TB, of *shared) *database {
	s := of.take(t)
	source := func(name string) string { return "root@unix(" + s.Socket() + ")/" + name }
	name := fmt.Sprint("test", databases.Add(1))
	created(t, "mysql", source(""), "CREATE DATABASE "+name)
	return &database{fencesql.MySQL, func() (*sql.DB, error) { return sql.Open("mysql", source(name)) }, s.Restart, source(name)}
}

func sqlite(t testing.TB) *database {
	file := filepath.Join(t.TempDir(), "data.db")
	source := "file:" + (&url.URL{Path: file}).EscapedPath() + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(2000)"
	return &database{fencesql.SQLite, func() (*sql.DB, error) { return sql.Open("sqlite", source) }, nil, source}
}

func created(t testing.TB, driver, source, statement string) {
	db := rt.Must(sql.Open(driver, source))(t)
	defer db.Close()
	answering(t, db)
	require.NoError(t, rt.Err(db.ExecContext(t.Context(), statement)))
}

func answering(t testing.TB, db *sql.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		err := db.PingContext(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the server does not answer: %v", err)
		case <-pause.C:
		}
	}
}

func (d *database) connect(t testing.TB) *sql.DB {
	t.Helper()
	db := rt.Must(d.open())(t)
	t.Cleanup(func() { _ = db.Close() })
	answering(t, db)
	return db
}

func (d *database) guard(t testing.TB, db *sql.DB, options ...fencesql.Option) *fencesql.Guard {
	t.Helper()
	g := rt.Must(fencesql.New(db, d.dialect, options...))(t)
	for range 2 {
		for _, statement := range g.Schema() {
			require.NoError(t, rt.Err(db.ExecContext(t.Context(), statement)))
		}
	}
	blob, text := "VARBINARY(1024)", "MEDIUMTEXT"
	switch d.dialect {
	case fencesql.PostgreSQL:
		blob, text = "bytea", "text"
	case fencesql.SQLite:
		blob, text = "BLOB", "TEXT"
	}
	statements := []string{"CREATE TABLE IF NOT EXISTS data (name " + blob + " PRIMARY KEY, value " + text + " NOT NULL)", "CREATE TABLE IF NOT EXISTS busy (id INT PRIMARY KEY, n INT)", "DELETE FROM busy", "INSERT INTO busy VALUES (1, 0)"}
	if d.dialect == fencesql.SQLite {
		statements = append(statements, "CREATE TRIGGER IF NOT EXISTS raised BEFORE INSERT ON busy WHEN NEW.id < 0 BEGIN SELECT RAISE(ROLLBACK, 'raised'); END")
	}
	for _, s := range statements {
		require.NoError(t, rt.Err(db.ExecContext(t.Context(), s)))
	}
	return g
}

func (d *database) ready(t testing.TB) (*sql.DB, *fencesql.Guard, rows, context.Context) {
	db := d.connect(t)
	g := d.guard(t, db)
	return db, g, rows{d, db, g}, t.Context()
}

func (d *database) put() string {
	switch d.dialect {
	case fencesql.PostgreSQL:
		return "INSERT INTO data AS d VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
	case fencesql.MySQL:
		return "INSERT INTO data VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)"
	}
	return "INSERT INTO data VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
}

func (d *database) get() string {
	if d.dialect == fencesql.PostgreSQL {
		return "SELECT value FROM data WHERE name = $1"
	}
	return "SELECT value FROM data WHERE name = ?"
}

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

// The guarded sets of many additions, and the suite of guards where make test does not run it.
func TestLongGuardsLoseNothing(t *testing.T) {
	rt.Long(t, "2,000 additions, and 300 where each is dozens of requests of HTTP")
	type fixture = func(t *testing.T) fencetest.Fixture
	for _, c := range []struct {
		name  string
		suite bool
		n     int
		open  func(t *testing.T) fixture
	}{
		{"bucket", false, 300, func(*testing.T) fixture { return bucket }},
		{"PostgreSQL", false, 2000, func(t *testing.T) fixture { return postgres(t).fixture }},
		{"pgx", false, 2000, func(t *testing.T) fixture { return postgres(t).pgxFixture }},
		{"MariaDB", false, 2000, func(t *testing.T) fixture { return mariadb(t).fixture }},
		{"SQLite", false, 2000, func(t *testing.T) fixture { return sqlite(t).fixture }},
		{"server of S3", true, 300, func(t *testing.T) fixture { return startVersity(t).fixture }},
		{"etcd", true, 2000, func(*testing.T) fixture { return etcdPart }},
	} {
		t.Run(c.name, func(t *testing.T) {
			open := c.open(t)
			if c.suite {
				fencetest.Run(t, open)
			}
			fencetest.RunSet(t, open, c.n)
		})
	}
}
