//go:build unix

package fenced

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestReportHasARowForAStorage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, report(t.Context(), &out, parts, "sqlite"))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 5)
	assert.Regexp(t, `^\| SQLite, database/sql \| \d+ · \d+ \| \d+ · \d+ \| \d+\.\d\d \(\d+\.\d\d–\d+\.\d\d\) \| – \| \d+ · \d+ \| \d+ · \d+ \|$`, lines[4])
	assert.Error(t, report(t.Context(), io.Discard, parts, "none of these"))
	assert.Error(t, Main([]string{"-ops", "1"}))
	assert.Error(t, Main([]string{"further"}))
}

// Each kind is done as often, in turns, with tokens that rise, and the error of one ends all.
func TestMeasureTakesTurns(t *testing.T) {
	t.Parallel()
	var order strings.Builder
	last, fail := uint64(0), error(nil)
	s := &storage{
		bare: func(context.Context) error { order.WriteByte('b'); return nil },
		under: func(_ context.Context, token uint64) error {
			order.WriteByte('f')
			assert.GreaterOrEqual(t, token, last)
			last = token
			return fail
		},
		claim: func(context.Context, uint64) error { order.WriteByte('c'); return nil },
	}
	f := rt.Must(measure(t.Context(), s, parts))(t)
	for _, all := range []times{f.bare, f.fenced, f.claim, f.first} {
		assert.Len(t, all, parts)
	}
	assert.True(t, strings.HasPrefix(order.String(), "fbfcffbcfbfc"), order.String())
	last, fail = 0, errors.New("broken")
	_, err := measure(t.Context(), s, parts)
	assert.ErrorIs(t, err, fail)
	assert.InDelta(t, 2, times{time.Microsecond, 3 * time.Microsecond, 2 * time.Microsecond}.at(0.5), 0)
}

func TestTripsAreAnswersThatWereWaitedFor(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	c := &counted{Conn: a, all: new(trips)}
	go func() { _, _ = io.Copy(b, b) }() // an echo
	one := make([]byte, 1)
	for want := range int64(3) {
		require.NoError(t, rt.Err(c.Write([]byte("ab"))))
		for range 2 { // an answer in two pieces
			require.NoError(t, rt.Err(c.Read(one)))
		}
		assert.Equal(t, want+1, c.all.n.Load())
	}
}
