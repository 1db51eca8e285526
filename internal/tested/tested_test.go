package tested

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestServerIsTestedWhereItsLineIs(t *testing.T) {
	t.Parallel()
	for s, want := range map[Server]bool{
		{"Redis", "7.2.4"}:      true,
		{"Redis", "7.2.13"}:     true,
		{"Redis", "7.20.1"}:     false,
		{"Redis", "8.0.0"}:      false,
		{"Valkey", "8.0.6"}:     true,
		{"Valkey", "7.2.7"}:     false,
		{"Redis", "8"}:          false,
		{"Dragonfly", "7.2.4"}:  false,
		{"Valkey", "9.1.0-rc2"}: true,
	} {
		assert.Equal(t, want, s.Tested(), s.String())
	}
}
