package cases

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRowsFillTheirPlaces(t *testing.T) {
	all := parse("f.txt", `
# what it proves
case plain
an "event with" blanks   => one two   # comment
asked nothing

case rows
row 1 a          => yes
row 2            => no indeed
at$1 $2 $3       => $>
`)
	require.Equal(t, []Case{
		{"plain", []Line{
			{"f.txt:4", []string{"an", "event with", "blanks"}, []string{"one", "two"}, true},
			{"f.txt:5", []string{"asked", "nothing"}, nil, false},
		}},
		{"rows: 1 a", []Line{{"f.txt:10", []string{"at1", "a"}, []string{"yes"}, true}}},
		{"rows: 2", []Line{{"f.txt:10", []string{"at2"}, []string{"no", "indeed"}, true}}},
	}, all)
}
