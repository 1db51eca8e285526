package redlock

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// keptBy finds what each client keeps for one kind of lock, or for one task. The client has it, and does not know what it is.
type keptBy[T any] struct{ at int }

// keep has every client keep a T, which begins as its zero value.
func keep[T any]() keptBy[T] {
	toKeep = append(toKeep, func() any { return new(T) })
	return keptBy[T]{len(toKeep) - 1}
}

// toKeep makes what a client keeps.
var toKeep []func() any

func newKept() []any {
	all := make([]any, len(toKeep))
	for i, one := range toKeep {
		all[i] = one()
	}
	return all
}

// of is what a client keeps.
func (k keptBy[T]) of(c *Client) *T { return c.kept[k.at].(*T) }

// What a client keeps may be one of these.
type (
	// changing is told of each change of a member.
	changing interface{ memberChanged() }
	// hearing is told of each push that is no attempt's.
	hearing interface {
		hear(i int, msg []byte, st member.State, at time.Time)
	}
)
