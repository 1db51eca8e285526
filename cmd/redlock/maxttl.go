package main

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
)

// learnMaxTTL sets the MaxTTL that nobody has given to the greatest one that the members know, or to the longest lease that
// the command asks for. A client tells the members its MaxTTL, and every later quarantine lasts as long. So a command that
// renews its lease, and that nobody gave a TTL, is content with a lease as long as the members know.
//
// It must not be less than the MaxTTL of any client that may hold a lease, or a member that forgot would vote too early.
// A client counts no vote before a majority knows its MaxTTL. So any majority that is read knows the greatest, and with less
// the default stands.
func (c *common) learnMaxTTL(ctx context.Context, s *settings.Settings) {
	if s.Given("max-ttl") {
		return
	}
	patience := cmp.Or(s.DialTimeout, redlock.LAN().DialTimeout)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	members, err := rawMembers(ctx, s)
	if err != nil { // who connects with these settings tells it
		return
	}
	defer closeAll(members)
	told := make(chan time.Duration, len(members))
	for _, m := range members {
		go func() { told <- m.maxTTL(ctx, patience) }() // ends with ctx
	}
	know, greatest := 0, time.Duration(0)
	for range members {
		q := <-told
		greatest = max(greatest, q)
		if q == 0 {
			continue
		}
		if know++; know == member.Majority(len(members)) {
			time.AfterFunc(cmp.Or(s.MemberTimeout, redlock.LAN().MemberTimeout), cancel)
		}
	}
	switch {
	case know < member.Majority(len(members)), c.atLeast > 0: // a lock that is left lasts for MaxTTL at most
		s.MaxTTL = max(s.MaxTTL, greatest)
	case c.takes && (c.exact || s.Given("ttl")):
		s.MaxTTL = max(s.TTL, greatest)
	default:
		s.MaxTTL = greatest
	}
	s.TTL = min(s.TTL, s.MaxTTL)
}

// maxTTL is the greatest MaxTTL that the markers of its servers have; 0: not every server tells one.
func (m *rawMember) maxTTL(ctx context.Context, patience time.Duration) (greatest time.Duration) {
	if m.ready(ctx, patience) != nil {
		return 0
	}
	for _, s := range m.servers {
		id := ""
		if m.target.Kind == node.RedisCluster {
			r, err := ask(ctx, s.Node, "CLUSTER", "MYID")
			if err != nil {
				return 0
			}
			id = string(r.Str)
		}
		marker, _ := node.MarkerKeys(s.slots, id)
		r, err := ask(ctx, s.Node, "HGET", marker, "q")
		if err != nil {
			return 0
		}
		ms, err := strconv.ParseInt(string(r.Str), 10, 64)
		if err != nil || ms <= 0 {
			return 0
		}
		greatest = max(greatest, duration.FromMillis(ms))
	}
	return greatest
}
