package fence

import (
	"context"
	"maps"
	"sync"
)

// Memory is a guard for storages in this process. The zero value is ready and has accepted nothing.
//
// It keeps one number for each resource for good, because forgetting one would let overtaken
// holders in again. It is safe for concurrent use, and must not be copied.
type Memory struct {
	mu      sync.Mutex
	highest map[string]uint64 // guarded by mu: greatest accepted token, never 0
	written map[string]uint64 // guarded by mu: greatest accepted token of a writer; only resources with readers, else it is highest
	turns   map[string]*turn  // guarded by mu: only resources with a Do that runs, or somebody behind it
}

var _ AtomicGuard = (*Memory)(nil)

// turn lets one caller at a time at a resource. It is a channel and not a mutex so that a context can
// end the wait.
type turn struct {
	taken chan struct{} // capacity 1: full while somebody has the turn
	users int           // guarded by Memory.mu: who has the turn or waits for it; removed at 0
}

// Check accepts or refuses a token, as Guard says. While a Do runs for the resource, Check waits,
// and returns ctx.Err() if ctx ends first. So the write itself must not call Check for that
// resource.
func (m *Memory) Check(ctx context.Context, resource string, token uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	if m.turns[resource] == nil { // nobody writes, and nobody can begin while we hold mu
		defer m.mu.Unlock()
		return m.admitLocked(resource, token)
	}
	m.mu.Unlock()
	return m.Do(ctx, resource, token, func() error { return nil })
}

// CheckShared accepts or refuses the token of a reader, as AdmitShared says. It waits for a running
// Do of the same resource, as Check does. After it, no write of an earlier holder happens. Readers
// do not refuse each other, whatever the order of their tokens.
//
// A guard that Restore filled does not know which tokens were readers', and takes all for those of
// writers. So it may refuse a reader until that reader takes the lock anew.
func (m *Memory) CheckShared(ctx context.Context, resource string, token uint64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leave, err := m.enter(ctx, resource, token, true)
	if err != nil {
		return err
	}
	defer leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	written := m.writtenLocked(resource)
	if err := AdmitShared(resource, written, token); err != nil {
		return err
	}
	if m.written == nil {
		m.written = make(map[string]uint64)
	}
	m.written[resource] = written // from now on it may be less than the greatest of any
	m.raiseLocked(resource, token)
	return nil
}

// writtenLocked is the greatest accepted token of a writer.
func (m *Memory) writtenLocked(resource string) uint64 {
	if written, readers := m.written[resource]; readers {
		return written
	}
	return m.highest[resource]
}

// Do runs write if it accepts the token, as AtomicGuard says. It waits for a running Do of the same
// resource. If ctx ends first, it returns ctx.Err() and does not run write. A token that is already
// stale does not wait. If write panics, the resource is free again and the panic goes on. write
// must not call Check or Do for the same resource.
func (m *Memory) Do(ctx context.Context, resource string, token uint64, write func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	leave, err := m.enter(ctx, resource, token, false)
	if err != nil {
		return err
	}
	defer leave()

	m.mu.Lock()
	err = m.admitLocked(resource, token)
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return write()
}

// enter waits for the turn at resource and returns what gives it up. It refuses a token at once that can
// only be refused later, too.
func (m *Memory) enter(ctx context.Context, resource string, token uint64, shared bool) (leave func(), err error) {
	m.mu.Lock()
	least := m.highest[resource]
	if shared {
		least = m.writtenLocked(resource)
	}
	if err := Admit(resource, least, token); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	t := m.turns[resource]
	if t == nil {
		if m.turns == nil {
			m.turns = make(map[string]*turn)
		}
		t = &turn{taken: make(chan struct{}, 1)}
		m.turns[resource] = t
	}
	t.users++
	m.mu.Unlock()

	select {
	case t.taken <- struct{}{}:
		return func() {
			<-t.taken
			m.quit(resource, t)
		}, nil
	case <-ctx.Done():
		m.quit(resource, t)
		return nil, ctx.Err()
	}
}

// quit removes the turn with its last user.
func (m *Memory) quit(resource string, t *turn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(m.turns, resource)
	}
}

func (m *Memory) admitLocked(resource string, token uint64) error {
	if err := Admit(resource, m.highest[resource], token); err != nil {
		return err
	}
	m.raiseLocked(resource, token)
	if _, readers := m.written[resource]; readers {
		m.written[resource] = token
	}
	return nil
}

func (m *Memory) raiseLocked(resource string, token uint64) {
	if token <= m.highest[resource] {
		return
	}
	if m.highest == nil {
		m.highest = make(map[string]uint64)
	}
	m.highest[resource] = token
}

// Highest returns the greatest token accepted for resource, or 0 if there is none.
func (m *Memory) Highest(resource string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.highest[resource]
}

// Snapshot returns a copy of the greatest accepted token of every resource, for Restore. It has the
// token of every Do whose write has begun. So data that was saved before the Snapshot never has a
// write that the Snapshot does not know. Save the data first and the snapshot second, and make both
// visible together.
//
// Resource names are arbitrary bytes. A text format such as JSON keeps names distinct only if they
// are valid UTF-8.
func (m *Memory) Snapshot() map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.highest == nil {
		return map[string]uint64{}
	}
	return maps.Clone(m.highest)
}

// Restore takes over what Snapshot returned. It only raises tokens, so what m has accepted itself
// remains. Restore may be called at any time and more than once, but it is of use only before the
// first Check.
func (m *Memory) Restore(snapshot map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for resource, token := range snapshot {
		m.raiseLocked(resource, token)
		if written, readers := m.written[resource]; readers { // it may have been a writer's
			m.written[resource] = max(written, token)
		}
	}
}
