//go:build unix

package fencing

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/internal/blocks"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

const repository = "../.."

// imported are the packages that blocks of Go name without importing them.
var imported = map[string]string{
	"context": "context", "errors": "errors", "fencesql": "github.com/redquorum/redquorum/fence/fencesql", "http": "net/http", "log": "log", "slog": "log/slog", "sql": "database/sql", "synctest": "testing/synctest", "testing": "testing", "time": "time",
	"clientv3": "go.etcd.io/etcd/client/v3", "gocron": "github.com/go-co-op/gocron/v2", "prometheus": "github.com/prometheus/client_golang/prometheus",
	"redlock": "github.com/redquorum/redquorum/redlock", "redlocktest": "github.com/redquorum/redquorum/redlock/redlocktest", "redlockhttp": "github.com/redquorum/redquorum/redlock/redlockhttp",
	"redlockgocron": "github.com/redquorum/redquorum/redlock/redlockgocron", "redlockprom": "github.com/redquorum/redquorum/redlock/redlockprom",
}

// Blocks of Go in the documents, and the programs in examples/, compile in a module that is not of this repository. Blocks
// run there, on members of redlocktest in fake time, until a minute has passed, unless they say why not. What surrounds them
// is in testdata/outside.
func TestGoOfDocumentsRunsInAModuleOutside(t *testing.T) {
	t.Parallel()
	dir, here := t.TempDir(), rt.Must(filepath.Abs(repository))(t)
	write := func(name, text string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	work := regexp.MustCompile(`(?m)^\t\.`).ReplaceAllString(string(rt.Must(os.ReadFile(here+"/go.work"))(t)), "\t"+here)
	write("go.work", work+"\nuse .\n")
	write("go.work.sum", string(rt.Must(os.ReadFile(here+"/go.work.sum"))(t)))
	write("go.mod", "module example.org/outside\n\ngo 1.25.0\n")
	around := string(rt.Must(os.ReadFile("testdata/outside/around.go"))(t))
	write("around_test.go", around)
	write("run_test.go", string(rt.Must(os.ReadFile("testdata/outside/run.go"))(t)))
	for _, file := range rt.Must(filepath.Glob(here + "/examples/*/main.go"))(t) {
		write(filepath.Base(filepath.Dir(file))+"/main.go", string(rt.Must(os.ReadFile(file))(t)))
	}
	all := "package outside\n\nvar all = map[string]block{\n"
	for i, b := range rt.Must(blocks.Of(repository, "go"))(t) {
		where, name := fmt.Sprintf("%s:%d", b.Document, b.Line), fmt.Sprint("block", i)
		switch line := "//line " + where + "\n"; {
		case strings.HasPrefix(b.Text, "package main"):
			write(name+"/main.go", line+b.Text)
		case strings.HasPrefix(b.Text, "func Test"): // in a package of its own, because some have the same name
			write(name+"/around_test.go", around)
			write(name+"/block_test.go", "package outside\n\n"+imports("testing.T "+b.Text)+line+b.Text)
		default:
			text := "func " + name + "(t *testing.T, ctx context.Context, d *redlocktest.Deployment, client *redlock.Client) error {\n" + line + b.Text + used(b.Text) + "return nil\n}\n"
			write(name+"_test.go", "package outside\n\n"+imports(text)+text)
			if b.How == "" {
				all += fmt.Sprintf("%q: %s,\n", where, name)
			}
		}
	}
	write("all_test.go", all+"}\n")
	for _, args := range [][]string{{"build", "./..."}, {"test", "-vet=off", "-count=1", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK="+filepath.Join(dir, "go.work"), "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
	}
}

func imports(text string) (all string) {
	for name, path := range imported {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(text) {
			all += "import \"" + path + "\"\n"
		}
	}
	return all + "\n"
}

// used uses the variables that a block declares, and returns its last error.
func used(text string) (all string) {
	for _, m := range regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) :=`).FindAllStringSubmatch(text, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			all += "_ = " + name + "\n"
		}
		if strings.Contains(m[1], "err") {
			all += "if err != nil { return err }\n"
		}
	}
	return strings.ReplaceAll(all, "_ = _\n", "")
}

// Statements of the documents run on the databases that they name. There they do what the guards do, for names of all kinds,
// and with the same rows.
func TestSQLOfDocumentsFences(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, kind := d.connect(t), map[fencesql.Dialect]string{fencesql.PostgreSQL: "PostgreSQL", fencesql.MySQL: "MariaDB", fencesql.SQLite: "SQLite"}[d.dialect]
		conn := rt.Must(db.Conn(t.Context()))(t)
		defer conn.Close()
		// one runs a statement, and returns what it reads first; 0 for no row.
		one := func(statement string, args ...any) (value int) {
			t.Helper()
			rows, err := conn.QueryContext(t.Context(), statement, args...)
			require.NoError(t, err, "%s %v", statement, args)
			if rows.Next() {
				require.NoError(t, rows.Scan(&value))
			}
			require.NoError(t, rows.Close(), statement)
			require.NoError(t, rows.Err(), statement)
			return value
		}
		seen := 0
		for _, b := range rt.Must(blocks.Of(repository, "sql"))(t) {
			if !strings.Contains(b.Why, kind) {
				continue
			}
			seen++
			var s []string
			for _, statement := range strings.Split(regexp.MustCompile(`--.*`).ReplaceAllString(b.Text, ""), ";") {
				if statement = strings.TrimSpace(statement); statement != "" {
					s = append(s, statement)
				}
			}
			switch {
			case strings.HasPrefix(s[0], "CREATE TABLE redquorum_fence"):
				one(s[0])
				guard := rt.Must(fencesql.New(db, d.dialect))(t)
				for _, name := range []string{"42", "042", `C:\temp`, `\x41`, "A", "ö"} {
					enter := func() (token int) {
						one(s[3])
						token = one(s[4], name)
						for _, next := range append(s[5:], "ROLLBACK") { // in MariaDB the savepoint, and the commit
							one(next)
						}
						return token
					}
					assert.Zero(t, enter(), "%s: nobody has claimed", name)
					for _, token := range []int{34, 33, 35} {
						one(s[1], name, token)
						assert.Equal(t, max(34, token), one(s[2], name), name)
						assert.Equal(t, max(34, token), enter(), name)
					}
					assert.ErrorIs(t, guard.Check(t.Context(), name, 34), fence.ErrStale, name)
					assert.NoError(t, guard.Check(t.Context(), name, 35), name)
				}
				if kind == "MariaDB" {
					for _, statement := range []string{s[3], s[5], s[6], "CREATE TABLE ends (n INT)"} {
						one(statement)
					}
					assert.Error(t, rt.Err(conn.ExecContext(t.Context(), s[7])), "a statement that commits has ended the transaction")
					one("ROLLBACK")
					one(s[9])
				}
			case strings.HasPrefix(s[0], "INSERT INTO redquorum_fence"):
				assert.Equal(t, 35, one(s[1], "A"))
				one(s[0], "A", 36)
				assert.Zero(t, one(s[1], "A"), "a greater token is announced")
				seen--
			case strings.HasPrefix(s[0], "ALTER TABLE invoices"):
				one("CREATE TABLE invoices (id INT PRIMARY KEY, total INT NOT NULL)")
				one("INSERT INTO invoices VALUES (42, 7)")
				one(s[0])
				claim := func(token int) int {
					if kind != "MariaDB" {
						return one(s[1], token, 42)
					}
					one(s[1], token, 42, token)
					return one(s[2], 42, token)
				}
				write := func(token, total int) {
					if kind != "MariaDB" {
						one(s[2], total, 42, token)
						return
					}
					if one(s[3]); one(s[4], 42, token) == 42 {
						one(s[5], total, 42)
						one(s[6])
					} else {
						one("ROLLBACK")
					}
				}
				assert.Equal(t, 7, claim(33), "the first holder after the column was added")
				assert.Equal(t, 7, claim(34))
				assert.Zero(t, claim(33), "overtaken")
				write(34, 8)
				write(33, 9)
				assert.Equal(t, 8, one("SELECT total FROM invoices"))
			default:
				t.Errorf("%s:%d: no test knows this block", b.Document, b.Line)
			}
		}
		assert.Equal(t, 2, seen, "blocks for %s", kind)
	})
}
