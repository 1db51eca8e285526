package fencesql

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStatementsAreThoseOfTheGuard(t *testing.T) {
	t.Parallel()
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		g, err := New(new(sql.DB), d)
		require.NoError(t, err)
		s, err := d.Statements("")
		require.NoError(t, err)
		assert.Equal(t, statements{schema: s.Schema, claim: s.Claim, current: s.Current, enter: s.Enter, verify: s.Verify}, g.statements)
		s.Schema[0], s.Verify[0] = "", ""
		assert.NotEmpty(t, g.Schema()[0])
		other, err := d.Statements("app.fence")
		require.NoError(t, err)
		for _, text := range append(other.Schema, other.Claim, other.Current, other.Enter) {
			assert.Contains(t, text, "app.fence")
			assert.NotContains(t, text, usual)
		}
	}
	for _, table := range []string{"a.b.c", "t; DROP TABLE t", `"t"`, strings.Repeat("t", 64)} {
		_, err := SQLite.Statements(table)
		assert.ErrorIs(t, err, ErrInput)
		_, err = PostgreSQL.Trigger(table, "data")
		assert.ErrorIs(t, err, ErrInput)
	}
	_, err := Dialect(0).Statements("")
	assert.ErrorIs(t, err, ErrInput)
	_, err = MySQL.Trigger("", "data")
	assert.ErrorIs(t, err, ErrInput)
	trigger, err := PostgreSQL.Trigger("", "data")
	require.NoError(t, err)
	assert.Contains(t, trigger[0], "FROM "+usual)
}
