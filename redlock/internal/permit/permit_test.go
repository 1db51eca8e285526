package permit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListIsReadAsItIsWritten(t *testing.T) {
	for _, text := range []string{"0:1", "3:17 5:20", "7:9007199254740991 4095:1"} {
		l, ok := Parse(text)
		require.True(t, ok, text)
		require.Equal(t, text, l.String())
	}
	l, ok := Parse("5:20 3:17")
	require.True(t, ok)
	require.Equal(t, List{{3, 17}, {5, 20}}, l, "sorted by slot")
	require.Equal(t, "3 5", string(l.AppendSlots(nil)))
	require.Equal(t, []int{3, 5}, l.Slots())
	require.EqualValues(t, 20, l.Token(5))
	require.Zero(t, l.Token(4))
	require.True(t, l.Has([]int{5, 3}))
	require.False(t, l.Has([]int{5, 4}))
}

func TestWhatIsNoListIsRefused(t *testing.T) {
	for _, text := range []string{"", "3", "3:", ":7", "3:0", "3:-1", "-3:7", "3:7 ", "3:7  5:8", "3:7 3:8", "x:7", "3:7:8", "99999999999:1"} {
		_, ok := Parse(text)
		require.False(t, ok, "%q", text)
	}
}
