//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencesql"
)

// A holder that stops while the server sends it rows is not idle. MySQL bounds that, too. PostgreSQL lets the claim wait
// until the holder goes on.
func TestHolderThatStopsWhileItReads(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, d *database) {
		rows10MB := ""
		switch d.dialect {
		case fencesql.PostgreSQL:
			rows10MB = "SELECT repeat('x', 1000) FROM generate_series(1, 10000)"
		case fencesql.MySQL:
			rows10MB = "SELECT repeat('x', 1000) FROM seq_1_to_10000"
		default:
			t.Skip("NO SERVER: SQLite cannot end a transaction of another process")
		}
		db := d.connect(t)
		g := d.guard(t, db, fencesql.HoldTimeout(time.Second))
		ctx := t.Context()
		require.NoError(t, g.Check(ctx, "r", 33))
		err := g.Tx(ctx, nil, "r", 33, func(tx *sql.Tx) error {
			if d.dialect == fencesql.MySQL { // a minute, unless somebody says otherwise
				var seconds int
				require.NoError(t, tx.QueryRowContext(ctx, "SELECT @@session.net_write_timeout").Scan(&seconds))
				require.Equal(t, 1, seconds)
			}
			list, err := tx.QueryContext(ctx, rows10MB)
			if err != nil {
				return err
			}
			defer list.Close()
			require.True(t, list.Next())
			if d.dialect == fencesql.MySQL {
				require.NoError(t, g.Check(ctx, "r", 34))
			} else {
				short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
				defer cancel()
				assert.ErrorIs(t, g.Check(short, "r", 34), context.DeadlineExceeded)
			}
			for list.Next() {
			}
			return errors.Join(list.Err(), list.Close())
		})
		if d.dialect == fencesql.MySQL {
			var step *fence.StepError
			assert.ErrorAs(t, err, &step, "33 commits after 34 was claimed")
		} else {
			assert.NoError(t, err)
		}
		assert.NoError(t, g.Check(ctx, "r", 34))
	})
}
