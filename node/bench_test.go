package node

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// signal is a Sink for one call at a time.
type signal chan struct{}

func (s signal) Done(*member.Call) { s <- struct{}{} }

func TestAnsweredCallAllocatesNothing(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript, delScript}})
	eval := resp.Command("EVALSHA", scriptSHA(setScript), "1", "k", "v", "tag")
	for name, c := range map[string]*member.Call{
		"integer":       {Command: member.Command{Cmd: resp.Command("INCR", "n")}},
		"string":        {Command: member.Command{Cmd: resp.Command("ECHO", "hello")}},
		"array":         {Command: member.Command{Cmd: resp.Command("TIME")}},
		"tagged script": {Command: member.Command{Cmd: eval[:len(eval)-len("$3\r\ntag\r\n")], Tagged: true}},
		"late":          {Command: member.Command{Cmd: resp.Command("INCR", "n")}, Delivery: member.Delivery{Late: true}},
	} {
		done := make(signal, 1)
		c.Sink = done
		one := func() {
			n.Submit(c)
			<-done
		}
		one()
		allocs := testing.AllocsPerRun(2000, one)
		require.True(t, allocs == 0 && c.Outcome == member.Answered, "%s: %v allocations, %v, %v", name, allocs, c.Outcome, c.Err)
	}
}

// go test -run xxx -bench Submit -benchmem -count 10 ./node
func BenchmarkSubmit(b *testing.B) {
	s := startRedis(b)
	set := resp.Command("SET", "k", "v", "NX", "PX", "30000")
	eval := resp.Command("EVALSHA", scriptSHA(setScript), "1", "k", "v", "tag")
	for _, bench := range []struct {
		name string
		call member.Call
	}{
		{"SET", member.Call{Command: member.Command{Cmd: set}}},
		{"EVALSHA", member.Call{Command: member.Command{Cmd: eval}}},
	} {
		for _, callers := range []int{1, 64, 1024} {
			b.Run(fmt.Sprintf("%s/callers=%d", bench.name, callers), func(b *testing.B) {
				n := up(b, Config{Addr: s.Addr(), Scripts: []string{setScript}})
				if callers == 1 {
					c, done := bench.call, make(signal, 1)
					c.Sink = done
					b.ReportAllocs()
					for b.Loop() {
						n.Submit(&c)
						<-done
					}
					return
				}
				b.ReportAllocs()
				b.SetParallelism((callers + 1) / 2)
				b.RunParallel(func(pb *testing.PB) {
					c, done := bench.call, make(signal, 1)
					c.Sink = done
					for pb.Next() {
						n.Submit(&c)
						<-done
					}
				})
			})
		}
	}
}
