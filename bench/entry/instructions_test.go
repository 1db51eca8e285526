package entry

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a lock and unlock costs a server, in instructions of its own (not the kernel's), which repeat whatever
// else the machine does: bare (SET NX PX and a delete script) and with redquorum's scripts, on a plain server and
// on one in cluster mode, one request at a time and 16 in one write.
//
//	go test ./entry -run '^$' -bench ServerInstructions -benchtime 1x
//
// It needs valgrind, and takes a minute.
func BenchmarkServerInstructions(b *testing.B) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		b.Skip("valgrind is not installed: it counts the instructions")
	}
	for _, depth := range []int{1, 2, 4, 8, 16, 64} {
		b.Run(fmt.Sprintf("plain/batch/depth=%d", depth), func(b *testing.B) {
			measure(b, false, batched, depth)
		})
	}
	for _, what := range []string{passed, handed} {
		b.Run("plain/"+what, func(b *testing.B) { measure(b, false, what, 1) })
	}
	for _, cluster := range []bool{false, true} {
		mode := map[bool]string{false: "plain", true: "cluster"}[cluster]
		for _, what := range []string{bare, ours} {
			for _, depth := range []int{1, 16} {
				b.Run(fmt.Sprintf("%s/%s/depth=%d", mode, what, depth), func(b *testing.B) {
					measure(b, cluster, what, depth)
				})
			}
		}
	}
	b.Run("cluster/batch/depth=16", func(b *testing.B) { measure(b, true, batched, 16) })
}

// What is sent.
const (
	bare    = "bare"
	ours    = "scripts"
	batched = "batch"
	passed  = "hand-over"          // a refused request that registers, and a release that executes it
	handed  = "hand-over/standing" // the same in the scripts of floor-standing
)

func measure(b *testing.B, cluster bool, what string, depth int) {
	var each float64
	for b.Loop() {
		const few, many = 320, 2240
		less := instructions(b, cluster, what, few, depth)
		each = float64(instructions(b, cluster, what, many, depth)-less) / (many - few)
	}
	b.ReportMetric(each, "instructions/op")
	b.ReportMetric(0, "ns/op") // of valgrind: it says nothing
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// instructions is what a server executes from its start to its end, with n locks and unlocks of fresh names
// between, depth of them in one write.
func instructions(b *testing.B, cluster bool, what string, n, depth int) int {
	b.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(b, free.Close())
	args := []string{"--tool=callgrind", "--callgrind-out-file=/dev/null", "redis-server", "--port", strconv.Itoa(port),
		"--bind", "127.0.0.1", "--save", "", "--hz", "1", "--dir", b.TempDir()}
	if cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", "0")
		if port > 55535 { // the port of the cluster's own talk would be 10,000 higher
			return instructions(b, cluster, what, n, depth)
		}
	}
	var said bytes.Buffer
	server := exec.CommandContext(b.Context(), "valgrind", args...)
	server.Stderr = &said
	require.NoError(b, server.Start())
	ended := false
	defer func() {
		if !ended {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	}()
	var conn net.Conn
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if conn, err = net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			break
		}
		require.True(b, time.Now().Before(end), "%v", err)
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	ask := func(request []byte, answers int) {
		_, err := conn.Write(request)
		require.NoError(b, err)
		for range answers {
			r, err := readReply(in)
			require.NoError(b, err)
			require.NotEqual(b, byte('-'), r.kind, "%s", r.text)
		}
	}
	if cluster {
		ask(command("CLUSTER", "ADDSLOTSRANGE", "0", "16383"), 1)
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			_, err = conn.Write(command("SET", "ready", "1"))
			require.NoError(b, err)
			r, err := readReply(in)
			require.NoError(b, err)
			if r.kind != '-' {
				break
			}
			require.True(b, time.Now().Before(end), "%s", r.text)
		}
	}
	r := bareRequests
	if what != bare {
		r, err = scriptRequests()
		require.NoError(b, err)
	}
	tokens, marker := "redquorum:tokens", "redquorum:boot"
	if cluster { // one key, of the slot
		tokens, marker = "redquorum:tokens:{l}", "redquorum:tokens:{l}"
	}
	for _, s := range append(r.scripts, standingWait, standingRelease) {
		ask(command("SCRIPT", "LOAD", s), 1)
	}
	const owner = "0123456789abcdefghijkl:1"
	for i := 0; i < n; i += depth {
		var locks, unlocks []byte
		if what == passed || what == handed {
			locks, unlocks = handOver(r.scripts, what, i)
			ask(locks, 1)
			ask(unlocks, 1)
			continue
		}
		if what == batched {
			locks, unlocks = batches(r.scripts[2], i, depth, owner, cluster)
			ask(locks, 1)
			ask(unlocks, 1)
			continue
		}
		for k := range depth {
			name := fmt.Sprintf("{l}:%09d", i+k)
			if what == bare {
				locks, unlocks = r.acquire(locks, name, []byte(owner), "9000"), r.release(unlocks, name, []byte(owner))
				continue
			}
			locks = appendCommand(locks, "EVALSHA", sha1hex(r.scripts[0]), "3", name, tokens, marker, "7", owner, "9000", "")
			unlocks = appendCommand(unlocks, "EVALSHA", sha1hex(r.scripts[1]), "5", name, tokens, marker,
				"redquorum:q:"+name, "redquorum:w:"+name, "7", owner, "", "")
		}
		ask(locks, depth)
		ask(unlocks, depth)
	}
	require.NoError(b, server.Process.Signal(os.Interrupt))
	err = server.Wait()
	ended = true
	found := collected.FindStringSubmatch(said.String())
	require.NotNil(b, found, "%v: %s", err, said.String())
	total, err := strconv.Atoi(found[1])
	require.NoError(b, err)
	return total
}

// batches are n locks in one call, and n unlocks in another; sharded: as a master of a cluster gets them.
func batches(script string, first, n int, owner string, sharded bool) (locks, unlocks []byte) {
	var lock, queues, unlock, buckets []string
	kinds := "0" + strings.Repeat("1", n-1)
	for i := range n {
		name := fmt.Sprintf("{l}:%09d", first+i)
		lock, unlock = append(lock, name), append(unlock, name)
		queues = append(queues, "redquorum:q:"+name)
		buckets = append(buckets, strconv.Itoa(i+1)) // locks of several slots
		if sharded {
			lock, unlock = append(lock, "redquorum:tokens:{l}"), append(unlock, "redquorum:tokens:{l}")
		}
	}
	listed := ""
	for _, bucket := range buckets {
		listed += fmt.Sprintf("%-6s", bucket)
	}
	whole := func(kinds string, keys, before []string, ttl bool, listed string) []byte {
		all := []string{"EVALSHA", sha1hex(script)}
		if sharded {
			all = append(append(all, "0", kinds, strconv.Itoa(3+len(keys))), keys...)
		} else {
			all = append(append(append(all, strconv.Itoa(2+len(keys)), "redquorum:tokens", "redquorum:boot"), keys...), kinds)
		}
		all = append(all, before...)
		for i := range n {
			if all = append(all, owner); ttl && i == 0 {
				all = append(all, "9000")
			}
		}
		return command(append(all, listed, "")...)
	}
	unlocks = whole(strings.Repeat("9", n), append(queues, unlock...), nil, false, listed)
	if sharded {
		return whole("4"+strings.Repeat("5", n-1), lock, nil, true, listed), unlocks
	}
	return whole(kinds, lock, buckets, true, ""), unlocks
}

// handOver is the i-th of a row of owners who wait for one lock, and the release of the one before.
func handOver(scripts []string, what string, i int) (wait, release []byte) {
	owner := func(i int) string { return fmt.Sprintf("0123456789abcdefghijkl:%09d", i) }
	if what == handed {
		return command("EVALSHA", standingWaitSHA, "4", "lock", "standing:tokens", "queue:lock", "ttls:lock", owner(i+1), "9000", "7"),
			command("EVALSHA", standingReleaseSHA, "4", "lock", "standing:tokens", "queue:lock", "ttls:lock", owner(i), owner(i+1), "7")
	}
	keys := []string{"5", "lock", "redquorum:tokens", "redquorum:boot", "redquorum:q:lock", "redquorum:w:lock", "7"}
	wait = command(append(append([]string{"EVALSHA", sha1hex(scripts[3])}, keys...), owner(i+1), "9000", "30000", "")...)
	return wait, command(append(append([]string{"EVALSHA", sha1hex(scripts[1])}, keys...), owner(i), owner(i+1), "")...)
}
