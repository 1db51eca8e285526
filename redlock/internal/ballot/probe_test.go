package ballot

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbeKnowsTheBallot(t *testing.T) {
	for what, n := range map[reflect.Type]int{
		reflect.TypeFor[Ballot](): 27, reflect.TypeFor[Voter](): 20, reflect.TypeFor[vote](): 4, reflect.TypeFor[poll](): 7,
		reflect.TypeFor[Past](): 7, reflect.TypeFor[tried](): 3,
		reflect.TypeFor[permits](): 9, reflect.TypeFor[seat](): 6,
	} {
		require.Equal(t, n, what.NumField(), "is a new field of %v in Clone, Shift, AppendKey and AppendVoter?", what)
	}
}

func TestTableOfStatesIsThatOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if _, row, found := strings.Cut(line, "//\t|"); found {
			cells := strings.Split(strings.TrimSuffix(strings.TrimSpace(row), "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	want := [][]string{{""}}
	for y := settled; y <= undone; y++ {
		want[0] = append(want[0], y.String())
	}
	for s := none; s <= gone; s++ {
		row := []string{s.String()}
		for y := settled; y <= undone; y++ {
			row = append(row, map[bool]string{true: "yes", false: "no"}[together[s][y]])
		}
		want = append(want, row)
	}
	require.Equal(t, want, rows)
}
