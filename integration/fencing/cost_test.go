//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a fence costs: a claim, and a transaction that reads and writes one row, with and without an entry, in turns on one
// connection. go test -run '^$' -bench Fenced -benchtime 2000x ./fencing
func BenchmarkFencedTransaction(b *testing.B) {
	for name, start := range map[string]func(testing.TB) *database{"PostgreSQL": postgres, "MariaDB": mariadb, "SQLite": sqlite} {
		b.Run(name, func(b *testing.B) {
			d := start(b)
			db := d.connect(b)
			g := d.guard(b, db)
			ctx := b.Context()
			work := func(tx *sql.Tx) error {
				var value string
				if err := tx.QueryRowContext(ctx, d.get(), []byte("r")).Scan(&value); err != nil {
					return err
				}
				n, err := strconv.Atoi(value)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, d.put(), []byte("r"), strconv.Itoa(n+1))
				return err
			}
			_, err := db.ExecContext(ctx, d.put(), []byte("r"), "0")
			require.NoError(b, err)
			require.NoError(b, g.Check(ctx, "r", 1))
			var bare, fenced, claims []time.Duration
			timed := func(to *[]time.Duration, f func() error) {
				begun := time.Now()
				if err := f(); err != nil {
					b.Fatal(err)
				}
				*to = append(*to, time.Since(begun))
			}
			for b.Loop() {
				timed(&bare, func() error { return plain(ctx, db, work) })
				timed(&fenced, func() error { return g.Tx(ctx, nil, "r", 1, work) })
			}
			for token := range uint64(len(bare)) {
				timed(&claims, func() error { return g.Check(ctx, "r", 2+token) })
			}
			for name, all := range map[string][]time.Duration{"bare": bare, "fenced": fenced, "claim": claims} {
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), name+"-p99-µs")
			}
			b.ReportMetric(float64(fenced[len(fenced)/2])/float64(bare[len(bare)/2]), "ratio")
		})
	}
}

// plain is what a program does without a fence.
func plain(ctx context.Context, db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}
