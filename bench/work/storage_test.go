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

// Readers may be inside together. If a writer is beside them, one of the two sees it, whichever
// came first.
func TestStorageSeesAWriterBesideReaders(t *testing.T) {
	s, err := OpenStorage(filepath.Join(t.TempDir(), "storage"))
	require.NoError(t, err)
	defer s.Close()
	a, b := s.EnterShared(), s.EnterShared()
	s.LeaveShared(&a)
	s.LeaveShared(&b)
	require.False(t, a.Overlap || b.Overlap)

	reader := s.EnterShared()
	writer := s.Enter(0)
	require.True(t, writer.Overlap, "a writer beside a reader")
	s.Leave(&writer)
	s.LeaveShared(&reader)
	require.True(t, reader.Overlap, "a writer came and went")

	writer = s.Enter(0)
	reader = s.EnterShared()
	require.True(t, reader.Overlap, "a reader beside a writer")
	s.Leave(&writer)
	s.LeaveShared(&reader)
	require.True(t, writer.Overlap)
	writer = s.Enter(0)
	s.Leave(&writer)
	require.False(t, writer.Overlap)
	require.EqualValues(t, 3, s.Count())
}

func TestNames(t *testing.T) {
	n, seen := newNames("p:", 0), map[string]bool{}
	for range 3 * n.piece {
		name := n.next()
		require.False(t, seen[name], name)
		seen[name] = true
	}
	n = newNames("p:", 0)
	require.Zero(t, testing.AllocsPerRun(n.piece/2, func() { n.next() }), "names are made before they are wanted")
	n, seen = newNames("p:", 10), map[string]bool{}
	for range 100 {
		seen[n.next()] = true
	}
	require.Len(t, seen, 10)
}
