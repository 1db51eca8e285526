package work

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The detector sees what it is there for: two holders at once, and the update that one of them loses.
func TestStorageSeesAnOverlap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage")
	s, err := OpenStorage(path)
	require.NoError(t, err)
	defer s.Close()
	other, err := OpenStorage(path) // as another process would
	require.NoError(t, err)
	defer other.Close()

	a := s.Enter(0)
	s.Leave(&a)
	require.False(t, a.Overlap)
	require.Less(t, a.Handoff, time.Duration(0), "nobody released before")
	b := other.Enter(1)
	require.False(t, b.Self)
	require.Positive(t, b.Handoff)
	other.Leave(&b)
	c := s.Enter(1)
	require.True(t, c.Self)
	s.Leave(&c)
	require.False(t, b.Overlap || c.Overlap)
	require.EqualValues(t, 3, s.Count())

	first, second := s.Enter(0), other.Enter(1)
	s.Leave(&first)
	other.Leave(&second)
	require.True(t, first.Overlap || second.Overlap)
	require.EqualValues(t, 4, s.Count(), "one of two updates is lost")
}

func TestNames(t *testing.T) {
	n, seen := newNames("p:", 0), map[string]bool{}
	for range 3 * namesAtOnce {
		name := n.next()
		require.False(t, seen[name], name)
		seen[name] = true
	}
	n, seen = newNames("p:", 10), map[string]bool{}
	for range 100 {
		seen[n.next()] = true
	}
	require.Len(t, seen, 10)
}
