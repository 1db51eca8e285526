package fencesql

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClaimsAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	var c claims
	assert.False(t, c.has("r", 1))
	c.add("r", 5)
	c.add("r", 3)
	assert.True(t, c.has("r", 4))
	assert.True(t, c.has("r", 5))
	assert.False(t, c.has("r", 6))
	assert.False(t, c.has("s", 1))
	for i := range 2 * mostClaims {
		c.add(fmt.Sprint(i), 1)
		assert.True(t, c.has(fmt.Sprint(i), 1))
	}
	assert.Len(t, c.of, mostClaims)
}
