package line

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/resp"
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

func TestOnlyTheScriptThatWasCalledIsSentInFull(t *testing.T) {
	const sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db" // of return 1
	cmd := resp.Command("EVALSHA", sha, "1", "k")
	marks := resp.Marks{Count: uint8(bytes.Index(cmd, []byte(sha)) + len(sha) + len("\r\n"))}
	var l Line
	l.Add(Entry{Call: &member.Call{Command: member.Command{Cmd: cmd, Marks: marks}}}, member.Brief{}, "", false)
	l.Give(l.Take())
	refused := *l.First()
	l.Pop()
	require.False(t, l.Again(refused, 0, "", "return 2"))
	require.True(t, l.Again(refused, 0, "", "return 1"))
	require.Equal(t, string(resp.Command("EVAL", "return 1", "1", "k")), string(l.Take()))
}
