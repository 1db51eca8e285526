package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// situation is a shell script with $K, the name of a lock. It runs in a session of its own: without a terminal, or with one,
// and then with the job control of a shell in which a person types.
type situation struct {
	types  []string // with a terminal: what a person types, each behind the text that it answers
	script string
	want   string // lines, in this order
}

const beginOfScript = `
await() { n=0; while ! "$@"; do n=$((n+1)); test $n -lt 3000 || { echo "never: $*"; exit 1; }; sleep 0.02; done; }
lives() { grep -q '^State:.[^ZX]' /proc/$1/status 2>/dev/null; }
dead() { ! lives $1; }
held() { redlock run $K -n -- true 2>/dev/null; test $? = 75 && echo held; }
free() { redlock run $K -n -- echo free; }
`

// situations are the rows of the table in docs/cli.md, by their first column.
var situations = map[string]situation{
	"INT, TERM, HUP or QUIT to redlock": {script: `
		for s in INT TERM HUP QUIT; do
			redlock run $K -- sh -c "trap 'echo got $s; exit 3' $s; kill -$s \$PPID; while :; do sleep 0.01; done"; echo $?
		done; free`,
		want: "got INT\n3\ngot TERM\n3\ngot HUP\n3\ngot QUIT\n3\nfree"},
	"USR1, USR2, CONT or WINCH to redlock": {script: `
		for s in USR1 USR2 CONT WINCH; do
			redlock run $K -- sh -c "trap 'echo got $s; exit 4' $s; kill -$s \$PPID; while :; do sleep 0.01; done"; echo $?
		done; free`,
		want: "got USR1\n4\ngot USR2\n4\ngot CONT\n4\ngot WINCH\n4\nfree"},
	"KILL of redlock": {script: `
		redlock run $K -- sh -c 'sleep 300 >/dev/null 2>&1 & echo $! >below; echo $$ >pid; kill -KILL $PPID; exec sleep 300'; echo $?
		await dead $(cat pid); lives $(cat below) && echo goes on; kill $(cat below)`,
		want: "137\ngoes on"},
	"STOP of redlock": {script: `
		redlock run $K --ttl 15s -- sh -c 'echo $$ >pid; kill -STOP $PPID; exec sleep 300' 2>err & p=$!
		await test -s pid; await grep -q '^State:.T' /proc/$p/status; redlock release $K --force --yes 2>/dev/null; free
		lives $(cat pid) && echo lives; kill -CONT $p; wait $p; echo $?; lives $(cat pid) || echo ended`,
		want: "free\nlives\n79\nended"},
	"the command is stopped": {script: `
		redlock run $K -- sh -c 'kill -STOP $$; echo never' 2>err & p=$!
		await grep -q 'the command is stopped, and the lock stays held' err; held; kill -TERM $p; wait $p; echo $?; free`,
		want: "held\n143\nfree"},
	"in the foreground of a terminal": {types: []string{"asks", "secret\n", "waits", "\x03"}, script: `
		trap : INT
		echo data | redlock run $K -- sh -c 'cat; echo asks; read x </dev/tty; echo "read $x"; echo waits; exec sleep 300'; echo $?; free`,
		want: "data\nread secret\n130\nfree"},
	"Ctrl-Z": {types: []string{"asks", "\x1a", "not stopping the command", "hello\n", "waits", "\x1a", "waits\r\n", "\x03"}, script: `
		redlock run $K -- sh -c 'echo asks; read x; echo "read $x"'; echo $?
		redlock run $K -q -- sh -c 'echo waits; exec sleep 300'; echo $?; free`,
		want: "read hello\n0\n130\nfree"},
	"in the background of a terminal (& at a prompt)": {types: []string{"it wants the terminal", "go\n", "asks", "hello\n"}, script: `
		stty tostop; redlock run $K -- sh -c 'read x; echo "read $x"' &
		read go; held; echo asks; fg >/dev/null; echo $?`,
		want: "held\nread hello\n0"},
	"& in a script": {script: `
		redlock run $K -- sh -c 'kill -INT $PPID $$; kill -QUIT $PPID $$; echo lives' & wait $!; echo $?; free`,
		want: "lives\n0\nfree"},
	"nohup": {script: `
		nohup redlock run $K -- sh -c 'kill -HUP $PPID $$; echo lives' </dev/null >out 2>&1; echo $?; cat out
		(trap '' TSTP; redlock run $K -- sh -c 'kill -TSTP $$; echo lives too'); free`,
		want: "0\nlives\nlives too\nfree"},
	"no terminal: cron, systemd, setsid": {types: []string{}, script: `
		setsid -w redlock run $K -- sh -c 'test $(cut -d " " -f 5 /proc/$$/stat) = $$ && echo a group of its own
			trap "exit 5" INT; kill -INT $PPID; while :; do sleep 0.01; done'; echo $?; free`,
		want: "a group of its own\n5\nfree"},
	"stdin is closed": {script: `redlock run $K -- cat <&-; echo $?; free`, want: "0\nfree"},
	"stdout and stderr are closed, or nobody reads them": {script: `
		redlock run $K -vv -- touch ran >&- 2>&-; echo $?; rm ran; touch reads
		(await test ! -e reads; redlock run $K -vv -- touch ran; echo $? >code) 2>&1 | rm reads; cat code; ls ran; free`,
		want: "0\n0\nran\nfree"},
	"stderr is not read for now (less, Ctrl-S)": {script: `
		mkfifo f; sleep 300 <f & reads=$!
		redlock run $K --ttl 15s -- sh -c 'echo $$ >pid; exec yes >&2' 2>f & p=$!
		await test -s pid; redlock release $K --force --yes 2>/dev/null; await dead $(cat pid); echo ended; kill $reads; wait $p; echo $?`,
		want: "ended\n79"},
	"as PID 1 of a container": {script: `
		in=; unshare --pid --fork --mount-proc true 2>/dev/null && in='unshare --pid --fork --mount-proc'
		$in redlock run $K -- sh -c 'test $PPID = 1 || test -z "$0" && echo parent; (setsid sleep 300 >/dev/null 2>&1 & :); exit 7' "$in" 2>/dev/null; echo $?; free`,
		want: "parent\n7\nfree"},
	"after exec, with children from before": {script: `
		sh -c 'sleep 300 & echo $! >before; exec redlock run $K -- sh -c "sleep 300 & echo \$! >below"' 2>/dev/null; echo $?
		lives $(cat before) && echo lives; dead $(cat below) && echo ended; kill $(cat before); free`,
		want: "0\nlives\nended\nfree"},
	"hold: stdin is at its end (& in a script)": {script: `
		redlock hold $K 2>err & wait $!; echo $?; grep -o 'give hold a pipe' err; mkfifo f
		exec 3<>f 4<f 3>&-; redlock hold $K <&4 2>err; echo $?; free`,
		want: "64\ngive hold a pipe\n64\nfree"},
	"hold: in the background of a terminal that is its stdin": {types: []string{}, script: `
		redlock hold $K 2>err & wait $!; echo $?; grep -o 'hold is in the background' err; free`,
		want: "64\nhold is in the background\nfree"},
	"hold: stdin ends while it waits": {script: `
		redlock acquire $K --ttl 290s >/dev/null; mkfifo f; redlock hold $K <f 2>err & p=$!; exec 3>f
		await sh -c 'redlock inspect $K --json | grep -q "\"waiting\""'; exec 3>&-; wait $p; echo $?; cat err`,
		want: "75\nredlock: standard input was closed before the lock was obtained"},
	"hold: stdin ends": {script: `
		mkfifo f; redlock hold $K <f >out & p=$!; exec 3>f; await test -s out
		sleep 300 & s=$!; exec 3>&-; held; kill $s; wait $p; echo $?; free`,
		want: "held\n0\nfree"},
	"hold, acquire: nobody reads stdout": {script: `
		mkfifo f
		for c in acquire hold; do
			touch reads; (await test ! -e reads; redlock $c $K <>f; echo $? >code) 2>/dev/null | rm reads; cat code; free
		done`,
		want: "70\nfree\n70\nfree"},
}

func init() { programs["afresh"] = afresh }

// afresh becomes another program, which ignores no signal. This process may ignore some: whoever started it did so, or a test
// that runs the command here.
func afresh() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	fmt.Fprintln(os.Stderr, syscall.Exec(os.Args[1], os.Args[2:], os.Environ()))
	os.Exit(1)
}

// What happens to the lock, the command and what it started stands in the table, and each row has its case here.
// Cost: 4 s, of a process or several for each row.
func TestSignalsAndTerminals(t *testing.T) {
	t.Parallel()
	unraced(t)
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU) // as whatever test may have done
	var names []string
	for name := range situations {
		names = append(names, name)
	}
	assert.ElementsMatch(t, column(table(t, "docs/cli.md", "Signals and terminals", "situation"), 0), names)
	start := embedded
	if redistest.Available() == nil {
		start = func(t *testing.T, n int) (*redistest.Cluster, []string) { return real(t, n, 5*time.Minute) }
	}
	_, urls := start(t, 1)
	for i, name := range slices.Sorted(slices.Values(names)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dir := situations[name], t.TempDir()
			path := filepath.Join(dir, "script")
			require.NoError(t, os.WriteFile(path, []byte(beginOfScript+s.script+"\n"), 0o600))
			cmd, output := process(t, urls, "")
			cmd.Path, cmd.Args = rt.Must(exec.LookPath("afresh"))(t), []string{"afresh", rt.Must(exec.LookPath("sh"))(t), "sh", path}
			cmd.Env, cmd.Dir = append(cmd.Env, "K=k"+strconv.Itoa(i), "REDLOCK_MAX_TTL=5m", "REDLOCK_TTL=4m"), dir
			cmd.SysProcAttr, cmd.WaitDelay = &syscall.SysProcAttr{Setsid: true}, patience
			var keys, screen *os.File
			if s.types != nil {
				cmd.Args, cmd.SysProcAttr.Setctty = slices.Insert(cmd.Args, 3, "-m"), true
				if bash, err := exec.LookPath("bash"); err == nil { // its fg sends no CONT to a job that it has not seen stopped
					cmd.Args[1] = bash
				}
				keys, screen = terminal(t)
				cmd.Stdin, cmd.Stdout, cmd.Stderr = screen, screen, screen
			}
			require.NoError(t, cmd.Start())
			bound := time.AfterFunc(2*patience, func() {
				_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
				_ = keys.Close()
			})
			defer bound.Stop()
			if s.types == nil {
				_ = cmd.Wait()
			} else {
				seen := make(chan struct{})
				go func() { // until nobody has the terminal
					defer close(seen)
					_, _ = io.Copy(output, keys)
				}()
				for i := 0; i < len(s.types); i += 2 {
					seen := func() bool { return strings.Contains(output.String(), s.types[i]) }
					if !assert.Eventually(t, seen, patience, 10*time.Millisecond) {
						t.Fatalf("%q is never said:\n%s", s.types[i], output.String())
					}
					rt.Must(keys.WriteString(s.types[i+1]))(t)
				}
				_ = cmd.Wait()
				require.NoError(t, screen.Close())
				<-seen
			}
			said, at := strings.NewReplacer("\r", "", "^C", "", "^Z", "").Replace(output.String()), 0
			for line := range strings.Lines(s.want + "\n") {
				i := strings.Index("\n"+said[at:], "\n"+line)
				require.GreaterOrEqual(t, i, 0, "%q is missing in:\n%s", line, said)
				at += i
			}
		})
	}
}

// terminal is a new one: where a person types and reads, and where programs do.
func terminal(t *testing.T) (keys, screen *os.File) {
	t.Helper()
	keys = rt.Must(os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = keys.Close() })
	number := 0
	require.NoError(t, rt.Must(keys.SyscallConn())(t).Control(func(fd uintptr) {
		require.NoError(t, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0))
		number = rt.Must(unix.IoctlGetInt(int(fd), unix.TIOCGPTN))(t)
	}))
	screen = rt.Must(os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	t.Cleanup(func() { _ = screen.Close() })
	return keys, screen
}
