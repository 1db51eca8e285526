package doctor

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

// Sighting is what one Sentinel says of the master.
type Sighting struct {
	Sentinel string // host:port
	Err      error  // the Sentinel does not answer, or does not know the name; nothing else is set then
	Master   string // host:port, as announced
	Epoch    int    // of the configuration: a failover raises it
	Flags    string // "master", with ",s_down" or ",o_down" behind it if the Sentinel takes it for dead
	Quorum   int    // Sentinels that must find the master dead
	Others   int    // other Sentinels that it knows
	Replicas int
}

// AskSentinels asks all Sentinels at once, each for at most its DialTimeout. master is the address to
// dial of the newest configuration that any of them tells, and "" if none does.
func AskSentinels(ctx context.Context, s *node.Sentinels) (all []Sighting, master string) {
	all = make([]Sighting, len(s.Addrs))
	var asking sync.WaitGroup
	for i, addr := range s.Addrs {
		asking.Go(func() { all[i] = askSentinel(ctx, s, addr) })
	}
	asking.Wait()
	master = newest(all)
	if to, ok := s.Dial[master]; ok {
		master = to
	}
	return all, master
}

// newest is the master of the configuration with the greatest epoch.
func newest(all []Sighting) (master string) {
	epoch := -1
	for _, a := range all {
		if a.Err == nil && a.Epoch > epoch {
			epoch, master = a.Epoch, a.Master
		}
	}
	return master
}

func askSentinel(ctx context.Context, s *node.Sentinels, addr string) Sighting {
	c := s.Config
	c.Network, c.Addr = "tcp", addr
	replies, err := node.Query(ctx, c, resp.Command("SENTINEL", "MASTER", s.Master))
	if err != nil {
		return Sighting{Sentinel: addr, Err: err}
	}
	if refused := node.Refusal(&replies[0]); refused != nil {
		err = node.Expect(ctx, c, node.BySentinel, refused)
		if strings.Contains(refused.Text, "No such master") {
			err = errors.New("it watches no master of this name")
		}
		return Sighting{Sentinel: addr, Err: err}
	}
	told := make(map[string]string)
	for pair := replies[0].Elems; len(pair) >= 2; pair = pair[2:] {
		told[string(pair[0].Str)] = string(pair[1].Str)
	}
	if told["ip"] == "" || told["port"] == "" || strings.ContainsFunc(told["ip"]+told["port"], func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return Sighting{Sentinel: addr, Err: errors.New("it does not say where the master is")}
	}
	number := func(name string) int { n, _ := strconv.Atoi(told[name]); return n }
	return Sighting{Sentinel: addr, Master: net.JoinHostPort(told["ip"], told["port"]), Epoch: number("config-epoch"), Flags: told["flags"],
		Quorum: number("quorum"), Others: number("num-other-sentinels"), Replicas: number("num-slaves")}
}
