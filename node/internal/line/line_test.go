package line

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

func TestNothingIsTakenWhileSomebodyWrites(t *testing.T) {
	var l Line
	add := func(cmd string) {
		l.Add(Entry{Call: &member.Call{Command: member.Command{Cmd: []byte(cmd)}}}, member.Brief{}, "", false)
	}
	require.Nil(t, l.Take())
	add("a")
	first := l.Take()
	add("b")
	require.Nil(t, l.Take())
	l.Give(nil) // by somebody who got nothing
	require.Nil(t, l.Take())
	l.Give(first)
	require.Equal(t, "a b", string(first)+" "+string(l.Take()))
}
