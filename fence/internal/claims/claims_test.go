package claims

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClaimsAreRememberedUpToABound(t *testing.T) {
	t.Parallel()
	var c Known
	assert.False(t, c.Has("r", 1))
	c.Add("r", 5)
	c.Add("r", 3)
	assert.True(t, c.Has("r", 4))
	assert.True(t, c.Has("r", 5))
	assert.False(t, c.Has("r", 6))
	assert.False(t, c.Has("s", 1))
	for i := range 2 * most {
		c.Add(fmt.Sprint(i), 1)
		assert.True(t, c.Has(fmt.Sprint(i), 1))
	}
	assert.Len(t, c.of, most)
}
