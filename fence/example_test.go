package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Accounts is a storage that lets no overtaken holder write.
type Accounts struct {
	guard    fence.Memory
	balances map[string]int
}

func (a *Accounts) Set(ctx context.Context, name string, balance int, token uint64) error {
	return a.guard.Do(ctx, name, token, func() error {
		a.balances[name] = balance
		return nil
	})
}

// Holder 33 is paused, its lease ends, and 34 takes over. When 33 wakes up, its write is refused.
func Example() {
	ctx := context.Background()
	accounts := &Accounts{balances: map[string]int{}}

	fmt.Println(accounts.Set(ctx, "alice", 100, 33))
	fmt.Println(accounts.Set(ctx, "alice", 70, 34))
	err := accounts.Set(ctx, "alice", 120, 33)
	fmt.Println(err)
	fmt.Println(errors.Is(err, fence.ErrStale), accounts.balances["alice"])
	// Output:
	// <nil>
	// <nil>
	// fence: stale token 33 for "alice": 34 has been accepted
	// true 70
}

// A storage with transactions keeps the token in the row that it guards, and asks Admit in the
// transaction that writes.
func ExampleAdmit() {
	row := struct {
		balance int
		token   uint64
	}{balance: 70, token: 34}

	update := func(balance int, token uint64) error { // BEGIN; SELECT ... FOR UPDATE
		if err := fence.Admit("alice", row.token, token); err != nil {
			return err // ROLLBACK
		}
		row.balance, row.token = balance, token
		return nil // COMMIT
	}
	fmt.Println(update(120, 33))
	fmt.Println(update(60, 34), row.balance)
	// Output:
	// fence: stale token 33 for "alice": 34 has been accepted
	// <nil> 60
}
