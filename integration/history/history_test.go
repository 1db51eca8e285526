package history

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
)

func TestCheckFindsWhatMustNeverBe(t *testing.T) {
	good := []Tenure{
		{Client: 0, Key: "k", Token: 1, Asked: 0, From: 5, To: 10, Back: 12},
		{Client: 1, Key: "k", Token: 2, Asked: 1, From: 11, To: 20, Back: 21},
		{Client: 0, Key: "other", Token: 2, Asked: 1, From: 5, To: 15, Back: 16},
		{Client: 2, Key: "k", Token: 4, Asked: 2, From: 21, To: 30}, // expired
		{Client: 3, Key: "k", Token: 3, Asked: 2, From: 25, To: 25}, // over before it was looked at
	}
	require.True(t, Check(good).Clean(), "%s", Check(good))
	for _, c := range []struct {
		name                           string
		add                            Tenure
		overlaps, regressions, illegal int
	}{
		{"overlap", Tenure{Client: 4, Key: "k", Token: 5, Asked: 22, From: 29, To: 40, Back: 41}, 1, 0, 1},
		{"token falls without an overlap", Tenure{Client: 4, Key: "k", Token: 3, Asked: 31, From: 40, To: 50, Back: 51}, 0, 2, 1},
		{"token twice", Tenure{Client: 4, Key: "k", Token: 4, Asked: 31, From: 40, To: 50, Back: 51}, 0, 2, 1},
		{"token twice, never believed in", Tenure{Client: 4, Key: "k", Token: 4, Asked: 31, From: 40, To: 40}, 0, 1, 0},
	} {
		v := Check(append(good[:len(good):len(good)], c.add))
		require.Len(t, v.Overlaps, c.overlaps, c.name)
		require.Len(t, v.Regressions, c.regressions, c.name)
		require.Len(t, v.Illegal, c.illegal, c.name)
	}
}

func TestStoreLosesWhatTwoHoldersWriteAtOnceUnlessItIsGuarded(t *testing.T) {
	var s Store
	for _, guarded := range []bool{true, false} {
		first, err := s.Read("k", guarded, 33)
		require.NoError(t, err)
		second, err := s.Read("k", guarded, 34)
		require.NoError(t, err)
		require.NoError(t, s.Add(second, 34))
		err = s.Add(first, 33)
		if guarded {
			require.ErrorIs(t, err, fence.ErrStale)
			continue
		}
		require.NoError(t, err)
	}
	guarded, unguarded := s.Lost()
	require.Zero(t, guarded)
	require.Equal(t, 1, unguarded)
	require.Equal(t, 1, s.Refused())
}

func TestNowAndAtAreOneClock(t *testing.T) {
	before := Now()
	at := At(time.Now())
	require.GreaterOrEqual(t, at, before)
	require.LessOrEqual(t, at, Now())
}
