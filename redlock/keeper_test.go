package redlock

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// A call carries leases of one script. If a member is several servers, they are of one slot as
// well.
func TestLeasesAreRenewedByScriptAndSlot(t *testing.T) {
	other := script.Script{SHA: strings.Repeat("f", 40)}
	kinds := map[string]string{script.Extend.SHA: "mutex", other.SHA: "other"}
	due := []struct{ name, kind string }{
		{"{a}1", "mutex"}, {"{b}1", "mutex"}, {"{a}2", "other"}, {"{b}2", "other"}, {"{a}3", "mutex"}, {"{b}3", "other"},
	}
	for _, tc := range []struct {
		name   string
		slots  bool
		expect []string
	}{
		{"one server", false, []string{"mutex {a}1 {b}1 {a}3", "other {a}2 {b}2 {b}3"}},
		{"a server for each slot", true, []string{"mutex {a}1 {a}3", "mutex {b}1", "other {a}2", "other {b}2 {b}3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			heard := &renewals{kinds: kinds}
			all := []member.Member{heard}
			if tc.slots {
				all[0] = bySlot{heard}
			}
			c, err := New(all)
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
			var leases []*Lease
			for _, d := range due {
				k := script.Exclusive(d.name)
				if d.kind == "other" {
					k = k.ExtendedBy(&other)
				}
				a := c.newAttempt(k, terms{kind: &exclusive, ttl: time.Minute, renew: true}, ballot.Past{}, nil)
				grant := ballot.Grant{Token: 1, Until: time.Now().Add(time.Minute / 2)}
				leases = append(leases, newLease(t.Context(), &a.hold, result{Grant: grant}, time.Now()))
			}
			c.keeper.renewAll(leases, time.Now())
			require.ElementsMatch(t, tc.expect, heard.all())
			for _, l := range leases {
				require.Greater(t, time.Until(l.ValidUntil()), time.Minute*3/4, "a word above 0 renews")
			}
		})
	}
}

// renewals is a member that says yes to each renewal, and remembers whose they were.
type renewals struct {
	kinds map[string]string // by script

	mu    sync.Mutex
	calls []string
}

// bySlot is one that spreads its keys over servers.
type bySlot struct{ *renewals }

func (m bySlot) StateOf(uint16) member.State { return m.State() }

func (m *renewals) Name() string                   { return "renewals" }
func (m *renewals) Listen(string, member.Listener) {}
func (m *renewals) Close(context.Context) error    { return nil }
func (m *renewals) State() member.State {
	return member.State{Gen: 1, Epoch: 1, Up: true, Votes: true, Inbox: true}
}

func (m *renewals) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

func (m *renewals) Submit(c *member.Call) {
	words := strings.Split(string(c.Cmd), "\r\n") // *n $7 EVALSHA $40 sha $1 keys $k key …
	kind, n := m.kinds[words[4]], 1
	r := member.Reply{Kind: ':', Int: 1}
	if kind != "" {
		n, _ = strconv.Atoi(words[6])
		call := kind
		for i := range n {
			call += " " + words[8+2*i]
		}
		m.mu.Lock()
		m.calls = append(m.calls, call)
		m.mu.Unlock()
		r.Int = 2 // another kind's yes
		r = member.Reply{Kind: '*', Elems: slices.Repeat([]member.Reply{r}, n)}
	}
	c.Outcome, c.Reply, c.State, c.At = member.Answered, r, m.State(), time.Now()
	c.Sink.Done(c)
}
