//go:build !race

package redlock_test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/stretchr/testify/require"
)

// What clients cost that do nothing: goroutines, memory (HeapInuse and StackInuse of this process), and
// what the members are sent. The race detector has memory of its own, so make test-long runs this without it.
func TestLongIdleClientsAreLight(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand clients")
	}
	const (
		clients = 1000
		span    = 20 * time.Second // two looks of each client
	)
	cluster := rt.Real(t, 3)
	urls := cluster.URLs()
	idle := func() (goroutines int, bytes uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapInuse + m.StackInuse
	}
	opened(t, urls, redlock.WithFreshMembers()) // marks the members
	goroutines, bytes := idle()
	for range clients {
		opened(t, urls, redlock.WithFreshMembers())
	}
	time.Sleep(2 * time.Second) // they settle; what follows is counted and not awaited
	g, b := idle()
	perGoroutine, perByte := float64(g-goroutines)/clients, (float64(b)-float64(bytes))/clients
	commands, cpu := load(t, cluster.Servers[0])
	time.Sleep(span)
	c, u := load(t, cluster.Servers[0])
	rate, core := float64(c-commands)/span.Seconds()/clients, (u-cpu)/span.Seconds()
	subscribed := redlock.Admin(t, cluster.Servers[0], "INFO", "clients")
	t.Logf("a client has %.1f goroutines and %.0f bytes, and sends a member %.2f commands a second; %d of them take %.2f %% of a core of it\n%s",
		perGoroutine, perByte, rate, clients, 100*core, subscribed)
	require.LessOrEqual(t, perGoroutine, 10.0) // two for each member, three of the client
	require.LessOrEqual(t, perByte, 160_000.0)
	require.LessOrEqual(t, rate, 0.65) // 0.1 for its looks, which are scripts of five commands
}

// load is what a server has executed and the seconds of a core that it took.
func load(t *testing.T, s redistest.Server) (commands int64, cpu float64) {
	for _, line := range strings.Split(fmt.Sprint(redlock.Admin(t, s, "INFO", "everything")), "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "total_commands_processed":
			commands, _ = strconv.ParseInt(value, 10, 64)
		case "used_cpu_sys", "used_cpu_user":
			x, _ := strconv.ParseFloat(value, 64)
			cpu += x
		}
	}
	return commands, cpu
}
