package redlock

import (
	"context"
	"reflect"
	"sync"
	"time"
)

// A call that waits for a lock with the context of a lease of that lock waits for itself: the lock becomes
// free when the lease ends, and then the context has ended.

// nested explains why a call that would wait for a lock can never get it. A call that does not wait is told
// by the members that the lock is held.
func (c *Client) nested(ctx context.Context, w *want) error {
	kind := w.terms.kind
	if w.try && kind.weaker == nil {
		return nil
	}
	out, _ := ctx.Value(around{}).(*enclosing)
	for ; out != nil; out, _ = out.end.Value(around{}).(*enclosing) {
		l := out.excluding(c, w)
		switch {
		case l == nil || !endsWith(ctx, out.end):
		case l.Shared():
			return &keyError{op: w.op, key: w.name, err: ErrUpgrade}
		case !w.try:
			return &keyError{op: w.op, key: w.name, err: ErrNested}
		}
	}
	return nil
}

// excluding returns a lease that what is wanted cannot be held beside, or nil. Permits of a semaphore are
// held beside each other.
func (out *enclosing) excluding(c *Client, w *want) *Lease {
	now := time.Now()
	for _, l := range out.leases {
		has, wants := l.hold.terms.kind, w.terms.kind
		if l.c == c && l.key == w.name && has.space == "" && wants.space == "" && !(has.together && wants.together) && l.alive(now) {
			return l
		}
	}
	return nil
}

// endsWith reports whether ctx ends when end does. A context that has only the values of end
// (context.WithoutCancel), or a child of that, does not: work that goes on after a lease may wait for the next
// one. Package context does not say it, so endsWith follows the parents as that package does. If it cannot
// follow one, it says no, and the call waits.
func endsWith(ctx, end context.Context) bool {
	key := cancelKey()
	for until := end.Value(key); until != nil; {
		at := ctx.Value(key) // the next that ends by itself, or none: the values of its parents come without their end
		if at == until {
			return true
		}
		p := reflect.ValueOf(at)
		if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Struct {
			return false
		}
		parent := p.Elem().FieldByName("Context")
		if !parent.IsValid() || !parent.CanInterface() {
			return false
		}
		var ok bool
		if ctx, ok = parent.Interface().(context.Context); !ok {
			return false
		}
	}
	return false
}

// cancelKey is the key under which package context finds the next context that ends by itself.
var cancelKey = sync.OnceValue(func() any {
	var asked asked
	_ = context.Cause(&asked)
	return asked.key
})

// asked is a context that remembers what it was asked for.
type asked struct {
	context.Context
	key any
}

func (a *asked) Value(key any) any { a.key = key; return nil }
func (a *asked) Err() error        { return context.Canceled } // of a context that has ended, the cause is looked for

// FromContext returns the lease whose context ctx is or comes from: that of Lease.Context, which Do
// gives to its function. If several leases are around each other, it returns the innermost. Inside a
// Multi it returns none, because none of its leases is more so than the others.
//
// The lease may have ended. Its Token is what a storage wants to see all the same: the storage
// judges it.
func FromContext(ctx context.Context) (*Lease, bool) {
	if ctx == nil {
		return nil, false
	}
	l, ok := ctx.Value(innermost{}).(*Lease)
	return l, ok && l != nil
}
