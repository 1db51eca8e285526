//go:build unix

package dbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Kind is a program that can be started.
type Kind struct {
	name    string
	missing string // what to install
	server  string // the program
	folders []string
	socket  string                    // the file's name; "" is "socket"
	port    bool                      // it has a port, and no socket
	ours    bool                      // it runs as the user of this process
	install func(s *Server) *exec.Cmd // makes the data, in a folder that is empty; nil makes an empty folder
	run     func(s *Server) *exec.Cmd
}

// Postgres is PostgreSQL: the newest one that Debian's packages have, if it is not in PATH. The user
// and the database are postgres.
var Postgres = Kind{
	name: "PostgreSQL", missing: "POSTGRESQL MISSING: no initdb; install it (Debian: apt-get install postgresql)",
	server: "initdb", folders: []string{"/usr/lib/postgresql/*/bin"}, socket: ".s.PGSQL.5432",
	install: func(s *Server) *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
	},
	run: func(s *Server) *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.Dir, "-c", "listen_addresses=", "-c", "max_connections=60", "-c", "shared_buffers=16MB")
	},
}

// MariaDB is MariaDB. The user is root, without a password.
var MariaDB = Kind{
	name: "MariaDB", missing: "MARIADB MISSING: no mariadbd, or no my_print_defaults; install it (Debian: apt-get install mariadb-server-core mariadb-client-core)",
	server: "mariadbd", folders: []string{"/usr/sbin", "/usr/local/sbin"},
	install: func(s *Server) *exec.Cmd {
		program, err := exec.LookPath("mariadb-install-db")
		if err != nil {
			program = "/usr/bin/mariadb-install-db"
		}
		return exec.Command(program, "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve")
	},
	run: func(s *Server) *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "mariadbd"), "--no-defaults", "--datadir="+s.data(), "--socket="+s.Socket(), "--skip-networking",
			"--pid-file="+filepath.Join(s.Dir, "pid"), "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M", "--tmpdir="+s.Dir,
			"--innodb-rollback-on-timeout") // the worse of the two, for whoever passes over an error
	},
}

// MySQL is MySQL 8. The folder has the files of Debian packages: see integration/fencing/mysql/fetch.
func MySQL(folder string) Kind {
	dir, err := filepath.Abs(folder)
	if err != nil {
		dir = folder
	}
	libraries := filepath.Join(dir, "usr/lib/x86_64-linux-gnu")
	command := func(s *Server, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "usr/sbin/mysqld"), append([]string{"--no-defaults", "--basedir=" + filepath.Join(dir, "usr"),
			"--datadir=" + s.data(), "--innodb-buffer-pool-size=16M", "--innodb-log-file-size=16M", "--disable-log-bin", "--secure-file-priv=NULL", "--innodb-rollback-on-timeout"}, args...)...)
		if os.Getuid() == 0 {
			cmd.Args = append(cmd.Args, "--user=root")
		}
		cmd.Env = []string{"LD_LIBRARY_PATH=" + libraries + ":" + filepath.Join(dir, "lib/x86_64-linux-gnu")}
		return cmd
	}
	return Kind{
		name: "MySQL", missing: "MYSQL MISSING: no mysqld in " + dir + "; make storages fetches it, with apt-get",
		server: filepath.Join(dir, "usr/sbin/mysqld"), ours: true,
		install: func(s *Server) *exec.Cmd { return command(s, "--initialize-insecure") },
		run: func(s *Server) *exec.Cmd {
			return command(s, "--socket="+s.Socket(), "--skip-networking", "--mysqlx=0", "--pid-file="+filepath.Join(s.Dir, "pid"), "--tmpdir="+s.Dir)
		},
	}
}

// PgBouncer stands before a PostgreSQL, and gives a server's connection to a client for a transaction.
func PgBouncer(behind *Server) Kind {
	return Kind{
		name: "PgBouncer", missing: "PGBOUNCER MISSING: no pgbouncer; install it (Debian: apt-get install pgbouncer)",
		server: "pgbouncer", folders: []string{"/usr/sbin", "/usr/local/sbin"}, socket: ".s.PGSQL.6432",
		run: func(s *Server) *exec.Cmd {
			settings := "[databases]\n* = host=" + behind.Dir + " user=postgres\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = " + s.Dir +
				"\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 20\nserver_login_retry = 0.05\n"
			file := filepath.Join(s.Dir, "settings")
			if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
				return &exec.Cmd{Err: err}
			}
			return exec.Command(filepath.Join(s.bin, "pgbouncer"), file)
		},
	}
}

// VersityGW is a server of S3 over files. The access key is "key", its secret "secret".
var VersityGW = Kind{
	name: "versitygw", missing: "VERSITYGW MISSING: no versitygw in PATH, or in the folder of go install; make storages installs it",
	server: "versitygw", folders: []string{os.Getenv("GOBIN"), filepath.Join(build.Default.GOPATH, "bin")}, ours: true,
	run: func(s *Server) *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "versitygw"), "--quiet", "--access", "key", "--secret", "secret", "--port", s.Socket(), "posix", s.data())
	},
}

// Etcd is a cluster of one member. Its data is on disk when it answers.
var Etcd = Kind{
	name: "etcd", missing: "ETCD MISSING: etcd is not in PATH; install it (Debian: apt-get install etcd-server)",
	server: "etcd", ours: true, socket: "client:0", // etcd wants a host and a port, and makes a file of that name
	run: func(s *Server) *exec.Cmd {
		const peer = "unix://peer:0"
		client := "unix://" + filepath.Base(s.Socket())
		return exec.Command(filepath.Join(s.bin, "etcd"), "--data-dir", s.data(), "--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error", "--logger", "zap",
			"--heartbeat-interval", "20", "--election-timeout", "100") // it elects itself
	},
}

// DynamoDB is DynamoDB Local, whose libraries are in a folder. It has a port of 127.0.0.1, and its data
// in memory: with files it answers before they have a write, so a crash forgets what it has acknowledged.
func DynamoDB(lib string) Kind {
	k := Kind{name: "DynamoDB Local", missing: "JAVA MISSING: java is not in PATH (Debian: apt-get install openjdk-17-jdk-headless maven)", server: "java", ours: true, port: true}
	lib, err := filepath.Abs(lib)
	if _, absent := os.Stat(filepath.Join(lib, "DynamoDBLocal-2.6.1.jar")); err != nil || absent != nil {
		k.server, k.missing = "no such program", "DYNAMODB LOCAL MISSING: no libraries in "+lib+"; make storages fetches them, with Maven"
	}
	k.run = func(s *Server) *exec.Cmd {
		_, port, _ := net.SplitHostPort(s.Address())
		return exec.Command(filepath.Join(s.bin, "java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.library.path="+lib, "-cp", filepath.Join(lib, "*"),
			"com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-port", port, "-inMemory", "-disableTelemetry")
	}
	return k
}

// Available says why Start cannot work here, and what to install.
func (k Kind) Available() error {
	if _, err := k.bin(); err != nil {
		return err
	}
	if _, _, err := k.owner(); err != nil {
		return err
	}
	return nil
}

func (k Kind) bin() (string, error) {
	if path, err := exec.LookPath(k.server); err == nil {
		return filepath.Dir(path), nil
	}
	var found []string
	for _, pattern := range k.folders {
		all, _ := filepath.Glob(filepath.Join(pattern, k.server))
		found = append(found, all...)
	}
	if len(found) == 0 {
		return "", errors.New(k.missing)
	}
	slices.Sort(found)
	return filepath.Dir(found[len(found)-1]), nil
}

// owner is who runs servers, if it is not this process: databases refuse to run as root.
func (k Kind) owner() (uid, gid int, err error) {
	if os.Getuid() != 0 || k.ours {
		return os.Getuid(), os.Getgid(), nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		return 0, 0, fmt.Errorf("NOBODY MISSING: databases do not run as root: %w", err)
	}
	if uid, err = strconv.Atoi(nobody.Uid); err == nil {
		gid, err = strconv.Atoi(nobody.Gid)
	}
	return uid, gid, err
}

// Memory is a folder in memory, if there is one with at least a gibibyte free, or "". What is there
// outlives a process that is killed, as a disk does, and no test waits for the disk of the machine.
func Memory() string {
	const folder = "/dev/shm"
	var room syscall.Statfs_t
	if err := syscall.Statfs(folder, &room); err != nil || uint64(room.Bavail)*uint64(room.Bsize) < 1<<30 {
		return ""
	}
	if dir, err := os.MkdirTemp(folder, "rqdb"); err != nil || os.Remove(dir) != nil {
		return ""
	}
	return folder
}

// Disk is a folder on a disk.
func Disk() string {
	if os.Getuid() != 0 {
		return os.TempDir()
	}
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		open := true // a server that runs as somebody else must be let through to its own
		for at := dir; open && at != "/" && at != "."; at = filepath.Dir(at) {
			info, err := os.Stat(at)
			open = err == nil && info.Mode()&0o001 != 0
		}
		if open {
			return dir
		}
	}
	return os.TempDir()
}

// Server is a process that runs.
type Server struct {
	Dir  string // has the socket of PostgreSQL
	kind Kind
	bin  string
	at   string   // the address, if it has a port
	life *os.File // locked for as long as this process lives

	mu   sync.Mutex
	cmd  *exec.Cmd     // guarded by mu: nil when it does not run
	done chan struct{} // guarded by mu: closed when cmd has ended
}

// Start makes a database in memory, or else on a disk, and starts its server. It does not wait until
// the server answers.
func (k Kind) Start(ctx context.Context) (*Server, error) {
	if folder := Memory(); folder != "" {
		return k.StartIn(ctx, folder)
	}
	return k.StartIn(ctx, Disk())
}

// StartIn is Start with a database in a new folder below folder.
func (k Kind) StartIn(ctx context.Context, folder string) (*Server, error) {
	bin, err := k.bin()
	if err != nil {
		return nil, err
	}
	uid, gid, err := k.owner()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(folder, "rqdb")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, kind: k, bin: bin}
	if k.port {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.at = free.Addr().String()
		_ = free.Close()
	}
	sweep(folder)
	if s.life, err = os.Create(dir + ".life"); err == nil {
		err = syscall.Flock(int(s.life.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err = os.Chown(dir, uid, gid); err == nil {
		err = s.prepare(ctx)
	}
	if err == nil {
		err = s.Restart()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// sweep removes what processes that were killed have left: memory is not for ever. A minute passes first,
// in which a new one locks its file.
func sweep(folder string) {
	files, _ := filepath.Glob(filepath.Join(folder, "rqdb*.life"))
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		if info, err := f.Stat(); err == nil && time.Since(info.ModTime()) > time.Minute && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(name[:len(name)-len(".life")])
			_ = os.Remove(name)
		}
		_ = f.Close()
	}
}

func (s *Server) data() string { return filepath.Join(s.Dir, "data") }

// Address is the host and the port of a server that has one.
func (s *Server) Address() string { return s.at }

// Socket is the path of the socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, cmp.Or(s.kind.socket, "socket")) }

func (s *Server) prepare(ctx context.Context) error {
	if s.kind.install == nil {
		return os.Mkdir(s.data(), 0o700)
	}
	cmd := s.kind.install(s)
	if err := s.lend(cmd); err != nil {
		return err
	}
	ended := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer ended()
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", s.kind.name, err, said)
	}
	return nil
}

// lend gives a command the user and the folder of the server.
func (s *Server) lend(cmd *exec.Cmd) error {
	uid, gid, err := s.kind.owner()
	if err != nil {
		return err
	}
	cmd.Dir = s.Dir
	cmd.Env = slices.Concat(os.Environ(), cmd.Env, []string{"HOME=" + s.Dir, "TMPDIR=" + s.Dir})
	cmd.SysProcAttr = dying()
	if os.Getuid() != uid {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
	}
	return nil
}

// Restart starts the server again, or for the first time, with the data that is there.
func (s *Server) Restart() error {
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for range 100 { // children of a server that was killed still end
		if err = s.startLocked(); err == nil {
			return nil
		}
	}
	return err
}

func (s *Server) startLocked() error {
	if err := os.Remove(s.Socket()); err != nil && !errors.Is(err, fs.ErrNotExist) { // one that was killed leaves it
		return err
	}
	cmd := s.kind.run(s)
	if err := s.lend(cmd); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	socket := time.NewTicker(5 * time.Millisecond)
	defer socket.Stop()
	for range 6000 { // 30 s
		select {
		case <-done:
			said, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
			return fmt.Errorf("%s ended: %s", s.kind.name, said[max(0, len(said)-2000):])
		case <-socket.C:
		}
		if s.listens() {
			s.cmd, s.done = cmd, done
			return nil
		}
	}
	_ = cmd.Process.Kill()
	<-done
	return fmt.Errorf("%s does not listen", s.kind.name)
}

func (s *Server) listens() bool {
	network, at := "unix", s.Socket()
	if s.kind.port {
		network, at = "tcp", s.at
	}
	c, err := net.Dial(network, at)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// Kill ends the server as kill -9 does, and waits until it has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// Close ends the server and removes its data.
func (s *Server) Close() error {
	s.Kill()
	err := os.RemoveAll(s.Dir)
	if s.life != nil {
		_ = os.Remove(s.life.Name())
		_ = s.life.Close()
	}
	return err
}
