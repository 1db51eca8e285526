package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/redquorum/redquorum/member"
)

// chained is an item that is made behind another one of its group only if that was answered above 0.
func chained(name string) *result { return item('a', name, "x") }

func groupOf(calls ...*result) (out []*member.Call) {
	for _, c := range calls {
		out = append(out, &c.Call)
	}
	return out
}

// A group is one command however few they are, and no call of others is in it. Each line is what is sent.
func TestGroupIsOneCommandOfItsOwn(t *testing.T) {
	for _, c := range []struct {
		name  string
		edit  func(*Config)
		apart bool
		calls func() (before, group, after []*result)
		want  []string
	}{
		{name: "two are enough", calls: func() (_, group, _ []*result) {
			return nil, []*result{chained("1"), chained("2")}, nil
		}, want: []string{"ac 1 2"}},
		{name: "others stand before and behind", calls: func() (before, group, after []*result) {
			return []*result{item('a', "1", "x"), item('a', "2", "x"), item('r', "3", "x")},
				[]*result{chained("4"), chained("5"), chained("6")},
				[]*result{chained("7"), chained("8"), chained("9")}
		}, want: []string{"aar 1 2 3", "acc 4 5 6", "aaa 7 8 9"}},
		{name: "of calls that are never chained", calls: func() (_, group, _ []*result) {
			return nil, []*result{item('r', "1", "x"), item('r', "2", "x")}, nil
		}, want: []string{"rr 1 2"}},
		{name: "one", calls: func() (_, group, _ []*result) {
			return nil, []*result{chained("1")}, nil
		}, want: []string{"1"}},
		{name: "as many as a command takes", calls: func() (_, group, _ []*result) {
			for range joinMost {
				group = append(group, chained("n"))
			}
			return nil, group, nil
		}, want: []string{"a" + strings.Repeat("c", joinMost-1) + strings.Repeat(" n", joinMost)}},
		{name: "more than a command takes", calls: func() (_, group, _ []*result) {
			for range joinMost + 3 {
				group = append(group, chained("n"))
			}
			return nil, group, nil
		}, want: []string{strings.Repeat("a", joinMost) + strings.Repeat(" n", joinMost), "aaa n n n"}},
		{name: "one of them takes no part in batches", calls: func() (_, group, _ []*result) {
			odd := chained("2")
			odd.Item = nil
			return nil, []*result{chained("1"), odd, chained("3")}, nil
		}, want: []string{"1", "2", "3"}},
		{name: "the server takes no batches", apart: true, calls: func() (_, group, _ []*result) {
			return nil, []*result{chained("1"), chained("2"), chained("3")}, nil
		}, want: []string{"1", "2", "3"}},
		{name: "replicas must acknowledge", edit: func(c *Config) { c.MinReplicasAck = 1 }, calls: func() (_, group, _ []*result) {
			return nil, []*result{chained("1"), chained("2")}, nil
		}, want: []string{"1", "WAIT", "2", "WAIT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, func(cfg *Config) {
				if c.edit != nil {
					c.edit(cfg)
				}
			})
			s := n.published.Load().session
			if c.apart {
				s.travelApart()
			}
			before, group, after := c.calls()
			s.mu.Lock()
			s.flushing = true
			s.mu.Unlock()
			for _, call := range before {
				n.Submit(&call.Call)
			}
			n.SubmitGroup(groupOf(group...))
			for _, call := range after {
				n.Submit(&call.Call)
			}
			s.wake()
			for _, call := range append(append(before, group...), after...) {
				if call.wait(t); call.Outcome != member.Answered {
					t.Errorf("%v: %v", call.Outcome, call.Err)
				}
			}
			if got, want := sent(), strings.Join(c.want, "\n"); got != want {
				t.Errorf("sent\n%s\nwant\n%s", got, want)
			}
			if calls, size := s.inFlight(); calls != 0 || size != 0 {
				t.Errorf("%d calls and %d bytes are still in line", calls, size)
			}
		})
	}
}

// A group that nobody else writes for is written by its caller.
func TestGroupIsWrittenAtOnce(t *testing.T) {
	n, sent := recording(t, func(*Config) {})
	group := []*result{chained("1"), chained("2")}
	n.SubmitGroup(groupOf(group...))
	for _, c := range group {
		c.wait(t)
	}
	if got := sent(); got != "ac 1 2" {
		t.Errorf("sent %s", got)
	}
}

// Where not all of a group can be queued, none of it is.
func TestGroupIsRefusedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		bar  func(n *Node)
		want error
	}{
		{"the line is full", func(c *Config) { c.MaxCalls = 2 }, func(*Node) {}, member.ErrOverflow},
		{"too many bytes", func(c *Config) { c.MaxBytes = 400 }, func(*Node) {}, member.ErrOverflow},
		{"the member may not vote", func(*Config) {}, func(n *Node) {
			n.mu.Lock()
			defer n.mu.Unlock()
			p := *n.published.Load()
			p.barred = member.ErrQuarantined
			n.published.Store(&p)
		}, member.ErrQuarantined},
		{"the member is down", func(*Config) {}, func(n *Node) { n.fell(n.published.Load().session) }, member.ErrDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, c.edit)
			s := n.published.Load().session
			if c.want == member.ErrDown {
				s.fail(member.ErrBroken, errors.New("test"))
			}
			c.bar(n)
			group := []*result{chained("1"), chained("2"), chained("3")}
			n.SubmitGroup(groupOf(group...))
			for _, call := range group {
				if call.wait(t); call.Outcome != member.NotSent || !errors.Is(call.Err, c.want) {
					t.Errorf("%v: %v", call.Outcome, call.Err)
				}
			}
			if got := sent(); got != "" {
				t.Errorf("sent %s", got)
			}
		})
	}
}

// Where a server refuses the command of a group, each call of it travels alone, and none is chained.
func TestGroupThatIsRefusedTravelsApart(t *testing.T) {
	n, _ := joining(t, func(_ int64, args []string) string {
		if isBatch(args) {
			return "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		}
		return "default"
	})
	for range 2 {
		group := []*result{chained("1"), chained("2"), chained("3")}
		n.SubmitGroup(groupOf(group...))
		for _, c := range group {
			if c.wait(t); c.Outcome != member.Answered {
				t.Errorf("%v: %v", c.Outcome, c.Err)
			}
		}
	}
}
