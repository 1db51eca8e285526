package node

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

func groupOf(calls ...*result) (out []*member.Call) {
	for _, c := range calls {
		out = append(out, &c.Call)
	}
	return out
}

// A group is one command however few they are, and no call of others is in it. Each line is what is sent.
func TestGroupIsOneCommandOfItsOwn(t *testing.T) {
	odd := item('a', "2", "x")
	odd.Item = nil
	for _, c := range []struct {
		name                 string
		before, group, after []*result
		apart                bool
		acks                 int
		want                 []string
	}{
		{name: "two are enough", group: items("a:1 a:2"), want: []string{"ac 1 2"}},
		{name: "others stand before and behind", before: items("a:1 a:2 r:3"), group: items("a:4 a:5 a:6"), after: items("a:7 a:8 a:9"),
			want: []string{"aar 1 2 3", "acc 4 5 6", "aaa 7 8 9"}},
		{name: "of calls that are never chained", group: items("r:1 r:2"), want: []string{"rr 1 2"}},
		{name: "one", group: items("a:1"), want: []string{"1"}},
		{name: "as many as a command takes", group: items(strings.Repeat("a:n ", line.Most)),
			want: []string{"a" + strings.Repeat("c", line.Most-1) + strings.Repeat(" n", line.Most)}},
		{name: "more than a command takes", group: items(strings.Repeat("a:n ", line.Most+3)),
			want: []string{strings.Repeat("a", line.Most) + strings.Repeat(" n", line.Most), "aaa n n n"}},
		{name: "one of them takes no part in batches", group: []*result{item('a', "1", "x"), odd, item('a', "3", "x")},
			want: []string{"1", "2", "3"}},
		{name: "the server takes no batches", apart: true, group: items("a:1 a:2 a:3"), want: []string{"1", "2", "3"}},
		{name: "replicas must acknowledge", acks: 1, group: items("a:1 a:2"), want: []string{"1", "WAIT", "2", "WAIT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, func(cfg *Config) { cfg.MinReplicasAck = c.acks })
			if c.apart {
				n.published.Load().session.travelApart()
			}
			s := occupied(n)
			submitAll(n, c.before...)
			n.SubmitGroup(groupOf(c.group...))
			submitAll(n, c.after...)
			s.wake()
			all(t, slices.Concat(c.before, c.group, c.after), member.Answered)
			require.Equal(t, strings.Join(c.want, "\n"), sent())
			drained(t, n)
		})
	}
}

func TestGroupIsWrittenAtOnce(t *testing.T) {
	n, sent := recording(t, func(*Config) {})
	group := items("a:1 a:2")
	n.SubmitGroup(groupOf(group...))
	all(t, group, member.Answered)
	require.Equal(t, "ac 1 2", sent())
}

func TestGroupIsRefusedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		bar  func(n *Node)
		want error
	}{
		{"the line is full", func(c *Config) { c.maxCalls = 2 }, func(*Node) {}, member.ErrOverflow},
		{"too many bytes", func(c *Config) { c.MaxBytes = 400 }, func(*Node) {}, member.ErrOverflow},
		{"the member may not vote", func(*Config) {}, func(n *Node) {
			n.mu.Lock()
			defer n.mu.Unlock()
			p := *n.published.Load()
			p.barred = member.ErrQuarantined
			n.published.Store(&p)
		}, member.ErrQuarantined},
		{"the member is down", func(*Config) {}, func(n *Node) {
			if s := n.published.Load().session; s != nil { // else its own goroutine was first
				n.fell(s)
			}
		}, member.ErrDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, c.edit)
			s := n.published.Load().session
			if c.want == member.ErrDown {
				s.fail(member.ErrBroken, errors.New("test"))
			}
			c.bar(n)
			group := items("a:1 a:2 a:3")
			n.SubmitGroup(groupOf(group...))
			all(t, group, member.NotSent, c.want)
			require.Empty(t, sent(), "sent")
		})
	}
}

func TestGroupThatIsRefusedTravelsApart(t *testing.T) {
	n, _ := joining(t, batching("-CROSSSLOT Keys in request don't hash to the same slot\r\n"))
	for range 2 {
		group := items("a:1 a:2 a:3")
		n.SubmitGroup(groupOf(group...))
		all(t, group, member.Answered)
	}
}
