//go:build !race

package redlock

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The scripts of the lock with readers do what the cases in redlock/internal/script/testdata/rw
// say, on a real server and on the embedded one.
func TestReadWriteScriptsDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "rw/*", func(s *scripted, lines []cases.Line) {
		site := &rwSite{serverSite{s}}
		site.as("writer")
		(&scriptPlay{T: s.T, stage: site}).play(lines)
	})
}

type rwSite struct{ serverSite }

// as has the next calls made by a writer, a reader, or a client of the mutex of the same name.
func (s *rwSite) as(whose string) {
	s.Lock = map[string]func(string) script.Lock{
		"writer": script.Writing, "reader": script.Reading, "mutex": script.Exclusive,
	}[whose](s.Name)
}

func (k keysOf) readers(word string) (string, bool) {
	switch word {
	case "phase": // drawn, told, marking, and until when each reader has the vote
		field := fields(k.lock)
		phase, ok := field["r"]
		if !ok {
			return "none", true
		}
		out := strings.Fields(phase + " -")[:3]
		var readers []string
		for owner, end := range field {
			if owner != "r" {
				readers = append(readers, called(owner)+" "+text(toInt(end)-1-k.now/1000)) // the scripts add one
			}
		}
		slices.Sort(readers)
		return strings.Join(append(out, readers...), " "), true
	case "readers": // that wait
		var all []string
		for owner, entry := range k.waiters {
			if strings.HasSuffix(entry, " r") {
				all = append(all, called(owner))
			}
		}
		slices.Sort(all)
		return cmp.Or(strings.Join(all, " "), "none"), true
	case "joined":
		return text(int64(len(k.lock)/2 - 1)), true
	}
	return "", false
}

func (s *rwSite) edit(words []string) string {
	s.Helper()
	k := s.keys()
	if said, ok := k.readers(words[0]); ok {
		return said
	}
	switch words[0] {
	case "ends": // ends OWNER TIME: a reader's part
		if owner := ownerNames[words[1]]; owner != "" {
			d := rt.Must(time.ParseDuration(words[2]))(s)
			s.ask("HSET", s.Name, owner, text(k.now/1000+d.Milliseconds()))
			return ""
		}
	case "lasts": // lasts OWNER TIME: what is left of an entry
		owner := ownerNames[words[1]]
		_, rest, _ := strings.Cut(k.waiters[owner], " ")
		d := rt.Must(time.ParseDuration(words[2]))(s)
		s.ask("HSET", WaitersOf(s.Name), owner, text(k.now/1000+d.Milliseconds())+" "+rest)
		return ""
	case "peeked": // token, who has the vote, who waits: by their hashes
		v := rt.Must(s.run(s.Peek(nil)))(s)
		view, ok := script.ReadView(replyFrom(v))
		require.True(s, ok)
		v = rt.Must(s.run(s.PeekHolders(nil)))(s)
		holders, ok := script.ReadView(replyFrom(v))
		require.True(s, ok)
		require.Empty(s, holders.Queue)
		require.Equal(s, []any{len(view.Readers), view.Owner}, []any{len(holders.Readers), holders.Owner})
		out := []string{text(view.Token)}
		for _, r := range view.Readers {
			require.Greater(s, r.TTL, time.Duration(0))
			out = append(out, nameOf(r.Owner))
		}
		if view.Owner != "" {
			out = append(out, nameOf(view.Owner))
		}
		for _, w := range view.Queue {
			require.True(s, w.Live && w.Waiting >= 0 && w.Waiting < time.Minute)
			out = append(out, nameOf(w.Owner)+map[bool]string{true: "/r"}[w.Reads])
		}
		return strings.Join(out, " ")
	case "downgrade":
		ttl := rt.Must(time.ParseDuration(words[2]))(s)
		l := script.Reading(s.Name)
		r := replyOf(s.run(l.Downgrade(nil, ownerOf(words[1]), ttl)))
		if r.err != "" {
			return r.err
		}
		return fmt.Sprint(r.n, " ", called(r.next))
	}
	return s.serverSite.edit(words)
}

func called(owner string) string {
	for _, name := range []string{"alice", "bob", "carol", "dave"} {
		if ownerNames[name] == owner {
			return name
		}
	}
	return owner
}

// nameOf is the name of an owner of whom only the hash is told; of nobody's, the hash itself.
func nameOf(hash string) string {
	for _, name := range []string{"alice", "bob", "carol", "dave", "java", "other"} {
		if script.Hash([]byte(ownerNames[name])) == hash {
			return name
		}
	}
	return hash
}

func fields(flat []string) map[string]string {
	out := map[string]string{}
	for pair := range slices.Chunk(flat, 2) {
		out[pair[0]] = pair[1]
	}
	return out
}

// replyFrom is what a client of the tests has read, as a member replies it.
func replyFrom(v any) *member.Reply {
	switch v := v.(type) {
	case int64:
		return &member.Reply{Kind: ':', Int: v}
	case string:
		return &member.Reply{Kind: '$', Str: []byte(v)}
	case []any:
		r := member.Reply{Kind: '*'}
		for _, e := range v {
			r.Elems = append(r.Elems, *replyFrom(e))
		}
		return &r
	}
	return &member.Reply{}
}
