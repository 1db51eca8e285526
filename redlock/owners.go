package redlock

import (
	"sync"
	"time"
)

// owners finds the leases that may be entered again (As).
type owners struct {
	mu sync.Mutex
	m  map[[2]string]*lease
}

var ownersOf = keep[owners]()

// again counts a re-entry, if an owner (As) holds the lock of a name through this client. If that
// lease is held beside others, and the owner asks for one that is not, held is true without a
// lease.
func (o *owners) again(name, as string, together bool) (l *lease, held bool) {
	if as == "" {
		return nil, false
	}
	o.mu.Lock()
	l = o.m[[2]string{name, as}]
	o.mu.Unlock()
	if l == nil || l.err() != nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.term.Err() != nil:
		return nil, false
	case l.hold.terms.kind.together && !together:
		return nil, true
	}
	l.users++
	return l, true
}

func (o *owners) put(l *lease) {
	if l.as == "" {
		return
	}
	o.mu.Lock()
	o.setLocked([2]string{l.key, l.as}, l)
	o.mu.Unlock()
	o.unlessEnded(l)
}

func (o *owners) setLocked(k [2]string, l *lease) {
	if o.m == nil {
		o.m = make(map[[2]string]*lease)
	}
	o.m[k] = l
}

// unlessEnded removes a lease that had perhaps ended before it was put.
func (o *owners) unlessEnded(l *lease) {
	if l.err() != nil {
		o.remove(l)
	}
}

// enter is put, unless the owner has a lease of that name: then it enters that one.
func (o *owners) enter(l *lease) *lease {
	if l.as == "" {
		return l
	}
	for k := [2]string{l.key, l.as}; ; {
		if first, _ := o.again(l.key, l.as, true); first != nil {
			return first
		}
		o.mu.Lock()
		first := o.m[k]
		if first == nil {
			o.setLocked(k, l)
		}
		o.mu.Unlock()
		if first == nil {
			o.unlessEnded(l)
			return l
		}
		if first.err() != nil {
			o.remove(first)
		}
	}
}

// behind returns a name after the given one, in the order of bytes, that an owner (As) holds.
func (o *owners) behind(name, as string) (held string, ok bool) {
	if as == "" {
		return "", false
	}
	var all []*lease
	o.mu.Lock()
	for k, l := range o.m {
		if k[1] == as && k[0] > name {
			all = append(all, l)
		}
	}
	o.mu.Unlock()
	now := time.Now()
	for _, l := range all {
		if l.alive(now) {
			return l.key, true
		}
	}
	return "", false
}

func (o *owners) remove(l *lease) {
	if l.as == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := [2]string{l.key, l.as}; o.m[k] == l {
		delete(o.m, k)
	}
}

// user is the part that Do has in a lease, if an owner may have several. Unlocking it twice gives
// up one part.
func (l *lease) user() *Lease { return &Lease{lease: l, part: true} }
