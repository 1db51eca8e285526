package demo

import (
	"context"
	"errors"
	"sync"

	"github.com/redquorum/redquorum/fence"
)

// account is the one record of the store, and the resource that its tokens fence.
const account = "account"

// store is what the lock protects: one number, which workers read, think about, and write back. The
// check of the token and what follows are one step (fence.Memory.Do), as they must be, at a read too:
// otherwise an earlier holder's write could still come between a later one's read and its write.
//
// Every accepted write adds 1 to what its worker has read, so the number must be equal to the count of
// accepted writes in the end: an update that is lost is another sign of two holders.
type store struct {
	guard fence.Memory

	mu       sync.Mutex // guards the fields below
	value    int
	accepted int
	refused  int
	watched  uint64 // a token that somebody waits to see overtaken, 0: none
	overtook chan overtaking
}

// overtaking is the first accepted write of a later token than the watched one.
type overtaking struct {
	worker int
	token  uint64
}

func (s *store) read(token uint64) (value int, err error) {
	err = s.admit(token, func() { value = s.value })
	return value, err
}

func (s *store) write(worker int, token uint64, value int) error {
	return s.admit(token, func() {
		s.value = value
		s.accepted++
		if s.watched != 0 && token > s.watched {
			s.watched = 0
			s.overtook <- overtaking{worker, token} // capacity 1, and one watch sends once
		}
	})
}

// admit does something, under the mutex, if the token is not too old.
func (s *store) admit(token uint64, do func()) error {
	err := s.guard.Do(context.Background(), account, token, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		do()
		return nil
	})
	if errors.Is(err, fence.ErrStale) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refused++
	}
	return err
}

// watch returns a channel that gets the first write, from now on, whose token is later than the given
// one. One watch at a time.
func (s *store) watch(token uint64) <-chan overtaking {
	ch := make(chan overtaking, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched, s.overtook = token, ch
	return ch
}

// books returns the value, the number of accepted writes, and that of refused ones.
func (s *store) books() (value, accepted, refused int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.accepted, s.refused
}
