package entry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Instructions prints what a lock and unlock costs a server, in instructions of its own (not the kernel's), which repeat
// whatever else the machine does: bare (SET NX PX and a delete script) and with redquorum's scripts, on a plain server and
// on one in cluster mode, one request at a time and 16 in one write. It needs valgrind, and takes minutes.
func Instructions(ctx context.Context, w io.Writer) error {
	tell := func(cluster bool, what string, depths ...int) error {
		for _, depth := range depths {
			n, err := perLock(ctx, cluster, what, depth)
			if err != nil {
				return err
			}
			mode := map[bool]string{false: "plain", true: "cluster"}[cluster]
			_, _ = fmt.Fprintf(w, "%s/%s/depth=%d\t%d instructions\n", mode, what, depth, n)
		}
		return nil
	}
	if err := tell(false, batched, 1, 2, 4, 8, 16, 64); err != nil {
		return err
	}
	for _, what := range []string{passed, handed} {
		if err := tell(false, what, 1); err != nil {
			return err
		}
	}
	for _, cluster := range []bool{false, true} {
		for _, what := range []string{bare, ours} {
			if err := tell(cluster, what, 1, 16); err != nil {
				return err
			}
		}
	}
	return tell(true, batched, 16)
}

// MemberInstructions is what a plain server executes for a lock and unlock, depth of them in one write, or in one call of
// redquorum's.
func MemberInstructions(ctx context.Context, floor bool, depth int) (int, error) {
	return perLock(ctx, false, map[bool]string{false: batched, true: bare}[floor], depth)
}

// perLock takes the difference of two runs, which leaves out what the start costs.
func perLock(ctx context.Context, cluster bool, what string, depth int) (int, error) {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return 0, errors.New("no valgrind, which counts the instructions (apt-get install valgrind)")
	}
	const few, many = 320, 2240
	less, err := instructions(ctx, cluster, what, few, depth)
	if err != nil {
		return 0, err
	}
	more, err := instructions(ctx, cluster, what, many, depth)
	return (more - less) / (many - few), err
}

// What is sent.
const (
	bare    = "bare"
	ours    = "scripts"
	batched = "batch"
	passed  = "hand-over"          // a refused request that registers, and a release that executes it
	handed  = "hand-over/standing" // the same in the scripts of floor-standing
)

// instructions is what a server executes from its start to its end, with n locks and unlocks of fresh names
// between, depth of them in one write.
func instructions(ctx context.Context, cluster bool, what string, n, depth int) (total int, failed error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "instructions")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	profile := filepath.Join(dir, "profile")
	args := []string{"--tool=callgrind", "--callgrind-out-file=" + profile, "redis-server", "--port", strconv.Itoa(port),
		"--bind", "127.0.0.1", "--save", "", "--hz", "1", "--dir", dir}
	if cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", "0")
		if port > 55535 { // the port of the cluster's own talk would be 10,000 higher
			return instructions(ctx, cluster, what, n, depth)
		}
	}
	server := exec.CommandContext(ctx, "valgrind", args...)
	if err := server.Start(); err != nil {
		return 0, err
	}
	ended := false
	defer func() {
		if !ended {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	}()
	var conn net.Conn
	if err := within(ctx, func() (err error) { conn, err = net.Dial("tcp", "127.0.0.1:"+strconv.Itoa(port)); return err }); err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	in := bufio.NewReader(conn)
	ask := func(request []byte, answers int) {
		_, err := conn.Write(request)
		for range answers {
			var r reply
			if err == nil {
				r, err = readReply(in)
			}
			if err == nil && r.kind == '-' {
				err = fmt.Errorf("the server says %s", r.text)
			}
		}
		if failed == nil {
			failed = err
		}
	}
	if cluster {
		ask(command("CLUSTER", "ADDSLOTSRANGE", "0", "16383"), 1)
		ready := func() error {
			defer func() { failed = nil }()
			ask(command("SET", "ready", "1"), 1)
			return failed
		}
		if err := within(ctx, ready); err != nil {
			return 0, err
		}
	}
	r := bareRequests
	if what != bare {
		if r, err = scriptRequests(); err != nil {
			return 0, err
		}
	}
	tokens, marker := "redquorum:tokens", "redquorum:boot"
	if cluster { // one key, of the slot
		tokens, marker = "redquorum:tokens:{l}", "redquorum:tokens:{l}"
	}
	for _, s := range append(r.scripts, standingWait, standingRelease) {
		ask(command("SCRIPT", "LOAD", s), 1)
	}
	const owner = "0123456789abcdefghijkl:1"
	for i := 0; i < n && failed == nil; i += depth {
		var locks, unlocks []byte
		answers := 1
		switch what {
		case passed, handed:
			locks, unlocks = handOver(r.scripts, what, i)
		case batched:
			locks, unlocks = batches(r.scripts[2], i, depth, owner, cluster)
		default:
			answers = depth
		}
		for k := range depth {
			name := fmt.Sprintf("{l}:%09d", i+k)
			switch what {
			case bare:
				locks, unlocks = r.acquire(locks, name, []byte(owner), "9000"), r.release(unlocks, name, []byte(owner))
			case ours:
				locks = appendCommand(locks, "EVALSHA", sha1hex(r.scripts[0]), "3", name, tokens, marker, "7", owner, "9000", "")
				unlocks = appendCommand(unlocks, "EVALSHA", sha1hex(r.scripts[1]), "5", name, tokens, marker,
					"redquorum:q:"+name, "redquorum:w:"+name, "7", owner, "", "")
			}
		}
		ask(locks, answers)
		ask(unlocks, answers)
	}
	if failed != nil {
		return 0, failed
	}
	if err := server.Process.Signal(os.Interrupt); err != nil {
		return 0, err
	}
	_ = server.Wait() // a server that was interrupted may say so
	ended = true
	p, err := ReadCallgrind(profile)
	if err != nil {
		return 0, err
	}
	return p.Events["Ir"], nil
}

// within tries again for a minute.
func within(ctx context.Context, try func() error) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return nil
		}
	}
	return err
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
