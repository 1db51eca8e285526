package judge

import (
	"context"
	"fmt"
	"sync"

	"github.com/redquorum/redquorum/fence"
)

// Store is the kind of storage that locks protect: one set per key. Every holder adds an element by
// reading the whole set, thinking, and writing the whole set. Without exclusion, additions get
// lost.
//
// It keeps each set twice. The guarded set refuses a token lower than one it has seen, on reading
// and on writing. The unguarded set takes what it is given, and is the control. If a fault breaks
// exclusion, it must lose additions, or the fault did nothing. A Store is safe for concurrent use.
//
// The model is the lock-set workload of Jepsen's analysis of etcd 3.4.3.
type Store struct {
	guard fence.Memory

	mu      sync.Mutex
	sets    map[setKey]*element
	added   map[setKey][]*element // acknowledged
	refused int
}

type setKey struct {
	key     string
	guarded bool
}

// element is a set: itself and those before it.
type element struct {
	before *element
	token  uint64
}

// Seen is a set as a holder has read it.
type Seen struct {
	at   setKey
	head *element
}

// Read returns the set of a key. With guarded, the guard checks the token, and may refuse it with
// an error that is a fence.ErrStale.
func (s *Store) Read(key string, guarded bool, token uint64) (seen Seen, err error) {
	seen.at = setKey{key, guarded}
	err = s.do(key, guarded, token, func() { seen.head = s.sets[seen.at] })
	return seen, err
}

// Add writes back the set that was read, with one more element.
func (s *Store) Add(seen Seen, token uint64) error {
	return s.do(seen.at.key, seen.at.guarded, token, func() {
		if s.sets == nil {
			s.sets, s.added = map[setKey]*element{}, map[setKey][]*element{}
		}
		e := &element{seen.head, token}
		s.sets[seen.at] = e
		s.added[seen.at] = append(s.added[seen.at], e)
	})
}

func (s *Store) do(key string, guarded bool, token uint64, f func()) error {
	locked := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		return nil
	}
	if !guarded {
		return locked()
	}
	err := s.guard.Do(context.Background(), key, token, locked)
	if err != nil {
		s.mu.Lock()
		s.refused++
		s.mu.Unlock()
	}
	return err
}

// Lost counts the acknowledged additions that are missing in the guarded and in the unguarded sets.
func (s *Store) Lost() (guarded, unguarded int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, added := range s.added {
		there := map[*element]bool{}
		for e := s.sets[at]; e != nil; e = e.before {
			there[e] = true
		}
		for _, e := range added {
			if there[e] {
				continue
			}
			if at.guarded {
				guarded++
			} else {
				unguarded++
			}
		}
	}
	return guarded, unguarded
}

// Refused counts what the guard has refused.
func (s *Store) Refused() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused
}

func (s *Store) String() string {
	g, u := s.Lost()
	return fmt.Sprintf("lost updates: %d guarded, %d unguarded; %d refused", g, u, s.Refused())
}
