// Package server runs the servers that entries talk to: Redis masters in sets, and PostgreSQL, etcd
// and ZooKeeper from the system's packages. Each has directories and ports of its own.
package server

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
)

// Set is the servers that one entry uses, with what the suite asks them itself.
type Set interface {
	Members() []string
	// Commands returns how many commands they have run so far, by name.
	Commands(ctx context.Context) (map[string]int64, error)
	// Left counts keys whose name has the prefix.
	Left(ctx context.Context, prefix string) (int, error)
	Version() string
	Pids() []int
	Close()
}

// RedisSet is a set of masters that do not know one another.
type RedisSet struct {
	real    []*redistest.Real // nil for somebody else's servers
	front   *redistest.Front  // of member 0, where it can have faults
	path    *redistest.Link
	members []string
	direct  []string
	version string
	broken  bool // nobody reaches member 0: what it keeps is not counted
}

// StartRedis starts n masters without persistence. With faults, member 0 is behind a proxy.
func StartRedis(ctx context.Context, n int, faults bool) (*RedisSet, error) {
	s := &RedisSet{real: make([]*redistest.Real, n)}
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			s.real[i], errs[i] = redistest.StartReal(ctx, redistest.RealConfig{Persist: redistest.Volatile})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Close()
		return nil, err
	}
	for i, r := range s.real {
		addr := r.Addr()
		var err error
		s.direct = append(s.direct, addr)
		if faults && i == 0 {
			s.path = r.Path()
			if s.front, err = s.path.Listen("127.0.0.1:0"); err != nil {
				s.Close()
				return nil, err
			}
			addr = s.front.Addr()
		}
		s.members = append(s.members, addr)
	}
	return s, s.ask(ctx)
}

// UseRedis takes running servers. Their addresses may begin with redis://.
func UseRedis(ctx context.Context, members []string) (*RedisSet, error) {
	s := &RedisSet{}
	for _, m := range members {
		m = strings.TrimSuffix(strings.TrimPrefix(m, "redis://"), "/")
		if strings.ContainsAny(m, "@/") {
			return nil, errors.New("members are host:port, without password or database: not all entries could use them")
		}
		s.members = append(s.members, m)
	}
	s.direct = s.members
	return s, s.ask(ctx)
}

func (s *RedisSet) ask(ctx context.Context) error {
	for _, m := range s.direct {
		info, err := s.info(ctx, m, "server")
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		version := "Redis " + info["redis_version"]
		if v := info["valkey_version"]; v != "" {
			version = "Valkey " + v
		}
		if s.version == "" {
			s.version = version
		} else if s.version != version && !strings.Contains(s.version, version) {
			s.version += ", " + version
		}
	}
	return nil
}

// Members returns the addresses for the entries.
func (s *RedisSet) Members() []string { return s.members }

// Pids returns the processes of the servers.
func (s *RedisSet) Pids() (pids []int) {
	for _, r := range s.real {
		if pid := r.Pid(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Version returns the version of the servers.
func (s *RedisSet) Version() string { return s.version }

// Close ends the servers that the set started.
func (s *RedisSet) Close() {
	if s.path != nil {
		s.path.Heal()
	}
	if s.front != nil {
		_ = s.front.Close()
	}
	for _, r := range s.real {
		if r != nil { // nil: it did not start
			r.Resume()
			_ = r.Close()
		}
	}
}

func do(ctx context.Context, addr string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := redistest.DialClient(ctx, dialer, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Do(ctx, args...)
}

func (s *RedisSet) info(ctx context.Context, addr, section string) (map[string]string, error) {
	v, err := do(ctx, addr, "INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := v.(string)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			out[k] = v
		}
	}
	return out, nil
}

// Memory is the used_memory of a member, the mean of all.
func (s *RedisSet) Memory(ctx context.Context) (sum int64, err error) {
	for _, m := range s.direct {
		info, err := s.info(ctx, m, "memory")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseInt(info["used_memory"], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: used_memory: %w", m, err)
		}
		sum += n
	}
	return sum / int64(len(s.direct)), nil
}

// live are the members that clients reach.
func (s *RedisSet) live() []string {
	if s.broken {
		return s.direct[1:]
	}
	return s.direct
}

// Commands adds up INFO commandstats of the living members.
func (s *RedisSet) Commands(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	for _, m := range s.live() {
		info, err := s.info(ctx, m, "commandstats")
		if err != nil {
			return nil, err
		}
		for k, v := range info {
			name, ok := strings.CutPrefix(k, "cmdstat_")
			calls, _, _ := strings.Cut(strings.TrimPrefix(v, "calls="), ",")
			if n, err := strconv.ParseInt(calls, 10, 64); ok && err == nil {
				out[name] += n
			}
		}
	}
	return out, nil
}

// Housekeeping lists the commands that do not count: those of the suite, and those that open and
// keep connections.
var Housekeeping = map[string]bool{"info": true, "dbsize": true, "scan": true, "ping": true, "hello": true, "auth": true, "select": true,
	"command": true, "cluster": true, "role": true, "config": true}

// Sent counts the commands that clients sent between two readings. It leaves out commands that run
// only inside the entry's scripts.
func Sent(before, after map[string]int64, inner []string) (n int64) {
	inside := map[string]bool{}
	for _, c := range inner {
		inside[c] = true
	}
	for name, calls := range after {
		family, _, _ := strings.Cut(name, "|")
		if inside[name] || Housekeeping[family] || family == "client" || family == "script" {
			continue
		}
		n += calls - before[name]
	}
	return n
}

// Left counts keys of the living members whose names contain the prefix. The keys that all locks
// share do not contain it.
func (s *RedisSet) Left(ctx context.Context, prefix string) (int, error) {
	left := 0
	for _, m := range s.live() {
		v, err := do(ctx, m, "DBSIZE")
		if err != nil {
			return 0, err
		}
		if n, _ := v.(int64); n == 0 {
			continue
		}
		for cursor := "0"; ; {
			v, err := do(ctx, m, "SCAN", cursor, "COUNT", "1000", "MATCH", "*"+prefix+"*")
			if err != nil {
				return 0, err
			}
			page, _ := v.([]any)
			if len(page) != 2 {
				return 0, fmt.Errorf("SCAN answered %v", v)
			}
			keys, _ := page[1].([]any)
			left += len(keys)
			if cursor, _ = page[0].(string); cursor == "0" {
				break
			}
		}
	}
	return left, nil
}

// These are the faults of member 0.
const (
	BlackHole = "black hole" // swallows everything, connections included
	Refuse    = "refuses"    // ends its connections and refuses new ones
	Freeze    = "frozen"     // SIGSTOP
	Kill      = "killed"     // SIGKILL
	Slow      = "+20 ms"     // each way
	Forget    = "restarted"  // SIGKILL, and started again without data
)

// Break puts the fault on member 0.
func (s *RedisSet) Break(fault string) error {
	if fault == Forget && s.real != nil {
		return s.real[0].Restart(false)
	}
	if s.path == nil {
		return errors.New("faults need servers that the suite starts itself")
	}
	switch fault {
	case BlackHole:
		s.path.BlackHole()
		s.broken = true
	case Refuse:
		// The listener goes, so that the kernel refuses.
		if err := s.front.Close(); err != nil {
			return err
		}
		s.front, s.broken = nil, true
	case Freeze:
		s.real[0].Pause()
		s.broken = true
	case Kill:
		s.real[0].Kill()
		if err := s.front.Close(); err != nil {
			return err
		}
		s.front, s.broken = nil, true
	case Slow:
		d := redistest.Delay{Fixed: 20 * time.Millisecond}
		s.path.SetDelay(d, d)
	default:
		return fmt.Errorf("no fault %q", fault)
	}
	return nil
}

// Count gives every member so many token counters of redquorum, as of locks or, if they are more than there are hash slots, as
// of semaphores of 1,000 permits. And it notes calls of more than 5 ms from then on.
func (s *RedisSet) Count(ctx context.Context, n int) error {
	const fill, piece = `for i = ARGV[1], ARGV[2] - 1 do
		redis.call('HSET', 'redquorum:tokens', ARGV[3] + 0 > 16384 and math.floor(i / 1000) .. '.' .. i % 1000 or i, ARGV[4]) end`, 4096
	now := strconv.FormatInt(time.Now().UnixMicro(), 10)
	for _, m := range s.direct {
		for at := 0; at < n; at += piece {
			if _, err := do(ctx, m, "EVAL", fill, "0", strconv.Itoa(at), strconv.Itoa(min(at+piece, n)), strconv.Itoa(n), now); err != nil {
				return err
			}
		}
		for _, cmd := range [][]string{{"CONFIG", "SET", "slowlog-log-slower-than", "5000"}, {"CONFIG", "SET", "slowlog-max-len", "10000"}, {"SLOWLOG", "RESET"}} {
			if _, err := do(ctx, m, cmd...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Traffic is what the members but the first have done.
type Traffic struct {
	In, Out int64  // bytes
	Slow    int64  // calls of more than 5 ms since Count
	Slowest string // of these
}

// Traffic looks at the members but the first.
func (s *RedisSet) Traffic(ctx context.Context) (t Traffic, err error) {
	longest := int64(0)
	for _, m := range s.direct[1:] {
		info, err := s.info(ctx, m, "stats")
		if err != nil {
			return t, err
		}
		in, err1 := strconv.ParseInt(info["total_net_input_bytes"], 10, 64)
		out, err2 := strconv.ParseInt(info["total_net_output_bytes"], 10, 64)
		log, err3 := do(ctx, m, "SLOWLOG", "GET", "10000")
		if err := errors.Join(err1, err2, err3); err != nil {
			return t, err
		}
		t.In, t.Out = t.In+in, t.Out+out
		all, _ := log.([]any)
		t.Slow += int64(len(all))
		for _, one := range all {
			call, _ := one.([]any) // number, when, µs, arguments
			if us, _ := call[2].(int64); us > longest {
				longest = us
				t.Slowest = fmt.Sprintf("%v %.80v", time.Duration(us)*time.Microsecond, call[3])
			}
		}
	}
	return t, nil
}
