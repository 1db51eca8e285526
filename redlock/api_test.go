package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
)

func TestMistakesInAConfigAreAllReportedAtOnce(t *testing.T) {
	_, err := redlock.New(nil, redlock.WithConfig(redlock.Config{
		TTL: -time.Second, Drift: 0.6, MemberTimeout: time.Nanosecond, Entry: time.Millisecond, MaxName: -1, StallTimeout: -1,
	}))
	require.ErrorIs(t, err, redlock.ErrInput)
	for _, field := range []string{"no members", "TTL", "Drift", "MemberTimeout", "Entry", "MaxName", "StallTimeout"} {
		require.ErrorContains(t, err, field)
	}
	_, err = redlock.New(make([]member.Member, quorum.MaxMembers+1))
	require.ErrorContains(t, err, "at most")
}

func TestHandoffIsDecodedOrRefused(t *testing.T) {
	for _, text := range []string{"", "redquorum1.", "redquorum1.!!!", "redquorum1.e30", "redquorum2.e30", "{}", "redquorum1." + strings.Repeat("A", 1000)} {
		h, err := redlock.ParseHandoff(text)
		require.ErrorIs(t, err, redlock.ErrInput, "%q", text)
		require.Equal(t, redlock.Handoff{}, h)
	}
}
