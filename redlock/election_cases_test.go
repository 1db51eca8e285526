//go:build !race

package redlock

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The scripts of an election do what the cases in redlock/internal/script/testdata/election say, on
// a real server and on the embedded one.
func TestElectionScriptsDoWhatTheProtocolSays(t *testing.T) {
	onCases(t, "election/*", func(s *scripted, lines []cases.Line) {
		p := &scriptPlay{T: s.T}
		p.stage = &electionSite{serverSite{s}, p}
		p.play(lines)
	})
}

type electionSite struct {
	serverSite
	play *scriptPlay
}

// as has the next calls made by a reader, or again by a candidate.
func (s *electionSite) as(whose string) {
	s.Lock = script.Exclusive(s.Name)
	if whose == "reader" {
		s.Lock = script.Reading(s.Name)
	}
}

func (s *electionSite) named() map[string]string {
	return map[string]string{"record": slot.Sibling("redquorum:e1", s.Name), "observers": slot.Sibling("redquorum:eo", s.Name)}
}

func (s *electionSite) all() map[string]string { return renamed(s.serverSite.all(), s.named()) }

func (s *electionSite) edit(words []string) string {
	s.Helper()
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	span := func(i int) time.Duration { d, _ := time.ParseDuration(words[i]); return d }
	who := func(hash string) string { return cmp.Or(nameOf(hash), "-") }
	said := func(v any, err error) string {
		if err != nil {
			s.play.failed = true
			return replyOf(nil, err).err
		}
		return fmt.Sprint(v)
	}
	switch words[0] {
	case "proclaim":
		cmd := s.Proclaim(nil, ownerOf(words[1]), toInt(words[2]), toInt(words[3]), span(4), []byte(arg(5)))
		return said(s.run(cmd))
	case "resign":
		return said(s.run(s.Resign(nil, ownerOf(words[1]), toInt(words[2]), span(3))))
	case "observe":
		v, err := s.run(s.Observe(nil, strings.TrimPrefix(words[1], "-"), span(2)))
		if err != nil {
			return said(nil, err)
		}
		got, ok := script.ReadElection(replyFrom(v))
		require.True(s, ok)
		require.LessOrEqual(s, got.Server, s.now())
		left := text(got.TTL.Milliseconds())
		if v.([]any)[1] == int64(-2) {
			left = "-2"
		}
		if got.By == "" {
			return fmt.Sprint(who(got.Owner), " ", left, " none")
		}
		value := "resigned"
		if got.Value != nil {
			value = cmp.Or(string(got.Value), "empty")
		}
		return fmt.Sprint(who(got.Owner), " ", left, " ", who(got.By), " ", got.Token, " ", got.Seq, " ", value)
	case "withdraw":
		return said(s.run(s.Observe(nil, words[1], 0)))
	case "watches":
		return strings.Join(slices.Sorted(maps.Keys(s.hash(s.named()["observers"]))), " ")
	case "lives":
		if key, ok := s.named()[words[1]]; ok {
			words[1] = key
		}
	case "redis":
		for i, w := range words {
			if key, ok := s.named()[strings.TrimPrefix(w, "$")]; ok {
				words[i] = key
			}
		}
	}
	return s.serverSite.edit(words)
}
