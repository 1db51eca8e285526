package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/fence"
)

// Accounts is a storage that lets no overtaken holder write, and keeps no reader from one.
type Accounts struct {
	guard    fence.Memory
	balances map[string]int
}

// Balance claims, and reads after that.
func (a *Accounts) Balance(ctx context.Context, name string, token uint64) (balance int, err error) {
	err = a.guard.Do(ctx, name, token, func() error {
		balance = a.balances[name]
		return nil
	})
	return balance, err
}

// Set enters and writes in one step.
func (a *Accounts) Set(ctx context.Context, name string, balance int, token uint64) error {
	return a.guard.Do(ctx, name, token, func() error {
		a.balances[name] = balance
		return nil
	})
}

// Holder 33 reads and is paused, and its lease ends. 34 takes over, and reads before it writes. When
// 33 wakes up between the two, its write is refused.
func Example() {
	ctx := context.Background()
	accounts := &Accounts{balances: map[string]int{"alice": 100}}

	before, _ := accounts.Balance(ctx, "alice", 33)
	now, _ := accounts.Balance(ctx, "alice", 34)
	err := accounts.Set(ctx, "alice", before+20, 33)
	fmt.Println(err)
	fmt.Println(accounts.Set(ctx, "alice", now-30, 34))
	fmt.Println(errors.Is(err, fence.ErrStale), accounts.balances["alice"])
	// Output:
	// fence: stale token 33 for "alice": 34 has been accepted
	// <nil>
	// true 70
}

// lease is what a *redlock.Lease tells.
type lease struct {
	key   string
	token uint64
}

func (l lease) Key() string   { return l.key }
func (l lease) Token() uint64 { return l.token }

// The holder claims as soon as it has the lock.
func ExampleClaim() {
	ctx := context.Background()
	guard := new(fence.Memory)
	fmt.Println(fence.Claim(ctx, guard, lease{"alice", 34}))
	fmt.Println(fence.Claim(ctx, guard, lease{"alice", 33}))
	// Output:
	// <nil>
	// fence: stale token 33 for "alice": 34 has been accepted
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
