package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFairIsRefusedByAKindThatHasNoStrictOrder(t *testing.T) {
	other := terms{kind: &kind{name: "other"}, ttl: time.Second}
	Fair()(&other)
	require.ErrorContains(t, other.check(&Config{}), "a lock of kind other has no option Fair")
}
