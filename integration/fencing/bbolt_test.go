//go:build unix

package fencing

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
)

// Bolt is the recipe for bbolt, and for any store with one writer: the token is in a bucket of the same file, and each
// transaction enters.
type Bolt struct{ db *bolt.DB }

// Enter claims and enters: there is one writer, so nobody claims until tx ends.
func (b Bolt) Enter(tx *bolt.Tx, resource string, token uint64) error {
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	tokens, err := tx.CreateBucketIfNotExists([]byte("redquorum_fence"))
	if err != nil {
		return err
	}
	name := append([]byte("="), resource...) // a key of bbolt is not empty
	var highest uint64
	if v := tokens.Get(name); len(v) == 8 {
		highest = binary.BigEndian.Uint64(v)
	} else if v != nil {
		return fmt.Errorf("damaged token of %q", resource)
	}
	if err := fence.Admit(resource, highest, token); err != nil || token == highest {
		return err
	}
	return tokens.Put(name, binary.BigEndian.AppendUint64(nil, token))
}

// Check is the claim: a transaction that only enters. It is on disk when Update returns.
func (b Bolt) Check(ctx context.Context, resource string, token uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.db.Update(func(tx *bolt.Tx) error { return b.Enter(tx, resource, token) })
}

// The holder claims, reads, and writes in a transaction that enters.
func Example_bbolt() {
	dir, err := os.MkdirTemp("", "bbolt")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	db, err := bolt.Open(filepath.Join(dir, "data"), 0o600, nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	guard := Bolt{db}
	pay := func(token uint64, total string) error {
		return db.Update(func(tx *bolt.Tx) error {
			if err := guard.Enter(tx, "invoice:42", token); err != nil {
				return err
			}
			invoices, err := tx.CreateBucketIfNotExists([]byte("invoices"))
			if err != nil {
				return err
			}
			return invoices.Put([]byte("42"), []byte(total))
		})
	}
	fmt.Println(guard.Check(context.Background(), "invoice:42", 34))
	fmt.Println(pay(34, "70"))
	fmt.Println(pay(33, "120"))
	// Output:
	// <nil>
	// <nil>
	// fence: stale token 33 for "invoice:42": 34 has been accepted
}

type boltRows struct{ Bolt }

func (b boltRows) Get(_ context.Context, resource string) (value string, err error) {
	err = b.db.View(func(tx *bolt.Tx) error {
		if data := tx.Bucket([]byte("data")); data != nil {
			value = string(data.Get([]byte("=" + resource)))
		}
		return nil
	})
	return value, err
}

func (b boltRows) put(tx *bolt.Tx, resource, value string) error {
	data, err := tx.CreateBucketIfNotExists([]byte("data"))
	if err != nil {
		return err
	}
	return data.Put([]byte("="+resource), []byte(value))
}

// Put does not call entered: a claim would wait for the one writer, which no context ends.
func (b boltRows) Put(_ context.Context, resource string, token uint64, value string, _ func()) error {
	return b.db.Update(func(tx *bolt.Tx) error {
		if err := b.Enter(tx, resource, token); err != nil {
			return err
		}
		return b.put(tx, resource, value)
	})
}

func (b boltRows) Overwrite(_ context.Context, resource, value string) error {
	return b.db.Update(func(tx *bolt.Tx) error { return b.put(tx, resource, value) })
}

func bboltFile(t *testing.T) fencetest.Fixture {
	file := filepath.Join(t.TempDir(), "data")
	db, err := bolt.Open(file, 0o600, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return fencetest.Fixture{
		Guard: Bolt{db}, Storage: boltRows{Bolt{db}},
		Reopen: func() (fence.Guard, error) {
			if err := db.Close(); err != nil {
				return nil, err
			}
			db, err = bolt.Open(file, 0o600, nil)
			return Bolt{db}, err
		},
	}
}

func TestRecipeOfBboltIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, bboltFile)
	fencetest.RunSet(t, bboltFile, 30)
}
