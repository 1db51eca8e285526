package fencesql

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// The tests on servers are in integration/fencing, because they need drivers.

func TestNewRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	db := new(sql.DB)
	for _, f := range []func() (*Guard, error){
		func() (*Guard, error) { return New(nil, PostgreSQL) },
		func() (*Guard, error) { return New(db, 0) },
		func() (*Guard, error) { return New(db, SQLite+1) },
		func() (*Guard, error) { return New(db, PostgreSQL, Table("")) },
		func() (*Guard, error) { return New(db, PostgreSQL, Table("t; DROP TABLE t")) },
		func() (*Guard, error) { return New(db, PostgreSQL, Table("a.b.c")) },
		func() (*Guard, error) { return New(db, PostgreSQL, Table("t\n")) },
		func() (*Guard, error) { return New(db, PostgreSQL, Table(strings.Repeat("t", 64))) },
		func() (*Guard, error) { return New(db, PostgreSQL, HoldTimeout(0)) },
		func() (*Guard, error) { return New(db, PostgreSQL, HoldTimeout(-time.Second)) },
		func() (*Guard, error) { return New(db, PostgreSQL, HoldTimeout(25*time.Hour)) },
	} {
		g, err := f()
		assert.ErrorIs(t, err, ErrInput)
		assert.Nil(t, g)
	}
	for _, d := range []Dialect{PostgreSQL, MySQL, SQLite} {
		g := rt.Must(New(db, d, Table("app.fence")))(t)
		require.Len(t, g.Schema(), 1)
		assert.Contains(t, g.Schema()[0], "app.fence")
		assert.NotContains(t, d.String(), "Dialect")
	}
}

// Errors as drivers make them: only their form is known here.
type (
	state    string                             // pgx, lib/pq
	numbered struct{ Number uint16 }            // go-sql-driver
	coded    struct{ code int }                 // modernc
	field    struct{ Code, ExtendedCode errNo } // mattn
	errNo    int                                //
	odd      struct{ Code string }              // something else
	needy    struct{ error }                    // a method with an argument
	many     struct{ all []error }              // errors.Join
)

func (s state) Error() string    { return string(s) }
func (s state) SQLState() string { return string(s) }
func (numbered) Error() string   { return "" }
func (coded) Error() string      { return "" }
func (c *coded) Code() int       { return c.code }
func (field) Error() string      { return "" }
func (odd) Error() string        { return "" }
func (needy) Code(int) int       { return 5 }
func (m many) Error() string     { return "" }
func (m many) Unwrap() []error   { return m.all }

func TestServerSaysWhatIsToBeRepeated(t *testing.T) {
	t.Parallel()
	wrapped := func(err error) error {
		return fmt.Errorf("a: %w", many{[]error{errors.New("b"), fmt.Errorf("c: %w", err)}})
	}
	for _, tc := range []struct {
		d    Dialect
		err  error
		want bool
	}{
		{PostgreSQL, state("40001"), true},
		{PostgreSQL, state("40P01"), true},
		{PostgreSQL, state("25P03"), false}, // the server has ended the transaction: HoldTimeout
		{PostgreSQL, state("23505"), false},
		{PostgreSQL, numbered{1213}, false},
		{MySQL, numbered{1213}, true},
		{MySQL, &numbered{1205}, true},
		{MySQL, &numbered{1020}, true},
		{MySQL, &numbered{1062}, false},
		{MySQL, (*numbered)(nil), false},
		{MySQL, state("40001"), false},
		{SQLite, &coded{5}, true},
		{SQLite, &coded{517}, true},
		{SQLite, &coded{6}, true},
		{SQLite, &coded{19}, false},
		{SQLite, (*coded)(nil), false},
		{SQLite, field{5, 517}, true},
		{SQLite, field{19, 5}, false},
		{SQLite, odd{"5"}, false},
		{SQLite, needy{errors.New("")}, false},
		{SQLite, sql.ErrNoRows, false},
	} {
		assert.Equal(t, tc.want, tc.d.again(tc.err), "%v: %T", tc.d, tc.err)
		assert.Equal(t, tc.want, tc.d.again(wrapped(tc.err)), "%v: %T, wrapped", tc.d, tc.err)
	}
	assert.False(t, PostgreSQL.again(nil))
}

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
