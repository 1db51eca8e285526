package fencesql

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestStatementsAreThoseOfTheGuard(t *testing.T) {
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		g := rt.Must(New(new(sql.DB), d))(t)
		s := rt.Must(d.Statements(""))(t)
		assert.Equal(t, s, g.ask)
		s.Schema[0], s.Verify[0] = "", ""
		assert.NotEmpty(t, g.Schema()[0])
		other := rt.Must(d.Statements("app.fence"))(t)
		for _, text := range append(other.Schema, other.Claim, other.Current, other.Enter) {
			assert.Contains(t, text, "app.fence")
			assert.NotContains(t, text, usual)
		}
	}
	for _, table := range []string{"a.b.c", "t; DROP TABLE t", `"t"`, strings.Repeat("t", 64)} {
		assert.ErrorIs(t, rt.Err(SQLite.Statements(table)), ErrInput)
		assert.ErrorIs(t, rt.Err(PostgreSQL.Trigger(table, "data")), ErrInput)
	}
	assert.ErrorIs(t, rt.Err(Dialect(0).Statements("")), ErrInput)
	assert.ErrorIs(t, rt.Err(MySQL.Trigger("", "data")), ErrInput)
	trigger := rt.Must(PostgreSQL.Trigger("", "data"))(t)
	assert.Contains(t, trigger[0], "'"+usual+"'::regclass")
}
