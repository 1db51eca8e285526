package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/internal/redistest"
)

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// Missing says why servers of a kind cannot be started, and what installs them. It returns "" if
// they can be started.
func Missing(kind entry.Kind) (why, install string) {
	switch kind {
	case entry.Redis:
		if err := redistest.Available(); err != nil {
			return err.Error(), "make redis"
		}
	case entry.Postgres:
		if _, err := postgresBinary("initdb"); err != nil {
			return err.Error(), "apt-get install postgresql"
		}
	case entry.Etcd:
		if _, err := exec.LookPath("etcd"); err != nil {
			return "no etcd", "apt-get install etcd-server"
		}
	case entry.ZooKeeper:
		if _, err := os.Stat(zooKeeperJar); err != nil {
			return "no " + zooKeeperJar, "apt-get install zookeeper"
		}
		if _, err := exec.LookPath("java"); err != nil {
			return "no java", "apt-get install default-jre-headless"
		}
	}
	return "", ""
}

// Start starts n servers of a kind other than Redis. They write below dir.
func Start(ctx context.Context, kind entry.Kind, n int, dir string) (Set, error) {
	switch kind {
	case entry.Postgres:
		return startPostgres(ctx)
	case entry.Etcd:
		return startEtcd(ctx, n, filepath.Join(dir, fmt.Sprintf("etcd%d", n)))
	case entry.ZooKeeper:
		return startZooKeeper(ctx, n, filepath.Join(dir, fmt.Sprintf("zookeeper%d", n)))
	}
	return nil, fmt.Errorf("no servers of kind %s", kind)
}

// others is a set of servers that are no Redis.
type others struct {
	members []string
	version string
	procs   []*process
	dir     string
	mu      sync.Mutex // held while left uses the one connection that it has
	left    func(ctx context.Context, prefix string) (int, error)
	close   func()
}

func (s *others) Members() []string                                  { return s.members }
func (s *others) Version() string                                    { return s.version }
func (s *others) Commands(context.Context) (map[string]int64, error) { return nil, nil }
func (s *others) Left(ctx context.Context, prefix string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left(ctx, prefix)
}

func (s *others) Pids() (pids []int) {
	for _, p := range s.procs {
		pids = append(pids, p.cmd.Process.Pid)
	}
	return pids
}

func (s *others) Close() {
	if s.close != nil {
		s.close()
	}
	for _, p := range s.procs {
		p.stop()
	}
	_ = os.RemoveAll(s.dir)
}

func postgresBinary(name string) (string, error) {
	p, err := binary(name, "/usr/lib/postgresql/*/bin/"+name, "/opt/homebrew/opt/postgresql*/bin/"+name)
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL: %w", err)
	}
	return p, nil
}

func startPostgres(ctx context.Context) (Set, error) {
	initdb, err := postgresBinary("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := postgresBinary("postgres")
	if err != nil {
		return nil, err
	}
	who, err := credentialOf("postgres") // it does not run as root
	if err != nil {
		return nil, err
	}
	// A folder of its own: those above must be open to that user.
	dir, err := os.MkdirTemp("", "bench-postgres-")
	if err != nil {
		return nil, err
	}
	s := &others{dir: dir}
	if who != nil {
		if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
			return nil, err
		}
	}
	data := filepath.Join(dir, "data")
	made, err := start(initdb, []string{"-D", data, "-U", "bench", "-A", "trust", "-E", "UTF8", "--locale=C"}, dir, who)
	if err != nil {
		return nil, err
	}
	<-made.done
	if !made.cmd.ProcessState.Success() {
		s.Close()
		return nil, fmt.Errorf("initdb: %s", tail(made.out.Bytes()))
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	p, err := start(postgres, []string{"-D", data, "-p", fmt.Sprint(ports[0]), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + dir,
		"-c", "max_connections=400"}, dir, who)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.procs = []*process{p}
	s.members = []string{fmt.Sprintf("127.0.0.1:%d", ports[0])}
	var conn *pgx.Conn
	if err := p.await(ctx, 20*time.Second, func(ctx context.Context) (err error) {
		conn, err = pgx.Connect(ctx, fmt.Sprintf("postgres://bench@%s/postgres?sslmode=disable", s.members[0]))
		return err
	}); err != nil {
		s.Close()
		return nil, err
	}
	s.close = func() { _ = conn.Close(context.Background()) }
	if _, err = conn.Exec(ctx, entry.PostgresTable); err == nil {
		err = conn.QueryRow(ctx, `SHOW server_version`).Scan(&s.version)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.version = "PostgreSQL " + s.version
	s.left = func(ctx context.Context, prefix string) (n int, err error) {
		// An advisory lock has no name that one could read back.
		err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM locks WHERE starts_with(name, $1))
			+ (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')`, prefix).Scan(&n)
		return n, err
	}
	return s, nil
}

func startEtcd(ctx context.Context, n int, dir string) (Set, error) {
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	s := &others{dir: dir}
	var cluster []string
	for i := range n {
		cluster = append(cluster, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[n+i]))
		s.members = append(s.members, fmt.Sprintf("127.0.0.1:%d", ports[i]))
	}
	for i := range n {
		home := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, err
		}
		client, peer := "http://"+s.members[i], fmt.Sprintf("http://127.0.0.1:%d", ports[n+i])
		p, err := start("etcd", []string{"--name", fmt.Sprintf("m%d", i), "--data-dir", home, "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(cluster, ","), "--log-level", "error", "--logger", "zap"}, dir, nil)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.procs = append(s.procs, p)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: s.members, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		s.Close()
		return nil, err
	}
	s.close = func() { _ = c.Close() }
	if err := s.procs[0].await(ctx, 30*time.Second, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		status, err := c.Status(ctx, s.members[0])
		if err == nil {
			s.version = "etcd " + status.Version
			_, err = c.Get(ctx, "ready") // linearizable: there is a leader
		}
		return err
	}); err != nil {
		s.Close()
		return nil, err
	}
	s.left = func(ctx context.Context, prefix string) (int, error) {
		r, err := c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		return int(r.Count), nil
	}
	return s, nil
}

func startZooKeeper(ctx context.Context, n int, dir string) (Set, error) {
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	s := &others{dir: dir, version: "ZooKeeper"}
	for i := range n {
		s.members = append(s.members, fmt.Sprintf("127.0.0.1:%d", ports[i]))
		home := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(home, 0o700); err != nil {
			return nil, err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "tickTime=1000\ninitLimit=20\nsyncLimit=10\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr\n", home, ports[i])
		if n > 1 {
			for j := range n {
				fmt.Fprintf(&b, "server.%d=127.0.0.1:%d:%d\n", j+1, ports[n+j], ports[2*n+j])
			}
		}
		for name, text := range map[string]string{
			"zoo.cfg": b.String(), "myid": fmt.Sprint(i + 1),
			"log4j.properties": "log4j.rootLogger=ERROR, CONSOLE\nlog4j.appender.CONSOLE=org.apache.log4j.ConsoleAppender\nlog4j.appender.CONSOLE.layout=org.apache.log4j.SimpleLayout\n",
		} {
			if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
		p, err := start("java", []string{"-Xmx256m", "-cp", home + ":" + zooKeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(home, "zoo.cfg")}, home, nil)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.procs = append(s.procs, p)
	}
	// A connection that is accepted before the server serves is never answered, and its client waits ten
	// session time-outs for that.
	if err := s.procs[0].await(ctx, 60*time.Second, func(context.Context) error {
		for _, m := range s.members {
			if err := serves(m); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		s.Close()
		return nil, err
	}
	c, events, err := zk.Connect(s.members, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		s.Close()
		return nil, err
	}
	s.close = c.Close
	go func() { // ends with the connection
		for range events {
		}
	}()
	if err := s.procs[0].await(ctx, 60*time.Second, func(context.Context) error {
		if c.State() != zk.StateHasSession {
			return fmt.Errorf("session: %v", c.State())
		}
		return nil
	}); err != nil {
		s.Close()
		return nil, err
	}
	if stats, ok := zk.FLWSrvr(s.members[:1], time.Second); ok && len(stats) > 0 {
		s.version += " " + strings.SplitN(stats[0].Version, "-", 2)[0]
	}
	s.left = func(_ context.Context, prefix string) (left int, err error) {
		children, _, err := c.Children("/")
		for _, name := range children {
			if strings.HasPrefix(name, prefix) {
				left++
			}
		}
		return left, err
	}
	return s, nil
}

// serves asks a ZooKeeper server whether it does.
func serves(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return err
	}
	text, err := io.ReadAll(c)
	if err == nil && !strings.HasPrefix(string(text), "Zookeeper version") {
		err = fmt.Errorf("not yet: %.100q", text)
	}
	return err
}

type silent struct{}

func (silent) Printf(string, ...any) {}
