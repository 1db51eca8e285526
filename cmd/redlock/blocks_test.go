//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/blocks"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// machine is a folder that stands for the root of one, with what the blocks of the documents call.
type machine struct {
	dir, port string
	urls      []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	port, held, err := redistest.TakePorts(3)
	require.NoError(t, err)
	m := &machine{t.TempDir(), strconv.Itoa(port), nil}
	_, m.urls = embedded(t, 3)
	t.Cleanup(func() { endServers(m.dir); _ = held.Close() })
	program := rt.Must(exec.LookPath("redlock"))(t)
	for name, text := range map[string]string{
		"usr/local/bin/redlock":    "[ \"$1 $2\" != 'nodes up' ] || set -- \"$@\" --port " + m.port + "\nexec " + program + ` "$@"`,
		"usr/local/bin/nightly.sh": `echo $$ $PPID >ran`, "nightly.sh": `echo $$ $PPID >ran`,
		"usr/local/bin/scheduler": `echo $$ $PPID >ran; exec sleep 600`,
		"report.csv":              "", "srv/reports/README": "",
	} {
		path := filepath.Join(m.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	return m
}

// run starts a program in the folder, with that environment and no other. What a document says of the root of a machine,
// and of members, is true of the folder and of ours.
func (m *machine) run(t *testing.T, env []string, args ...string) *ofBlock {
	t.Helper()
	for i, arg := range args {
		args[i] = m.here(arg)
	}
	p := &ofBlock{cmd: exec.CommandContext(t.Context(), args[0], args[1:]...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = m.dir, &p.out, &p.out
	for _, v := range append(env, "REDLOCK_MEMBER_TIMEOUT="+patience.String()) { // a busy machine is none of the documents' business
		p.cmd.Env = append(p.cmd.Env, m.here(v))
	}
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		close(p.ended)
	}()
	return p
}

// ofBlock is a program that run has started. Its code and what it said are there when it has ended.
type ofBlock struct {
	cmd   *exec.Cmd
	ended chan struct{}
	code  int
	out   strings.Builder
}

func (m *machine) here(text string) string {
	text = regexp.MustCompile(`/(usr/local|srv)/`).ReplaceAllString(text, m.dir+"/$1/")
	return regexp.MustCompile(`redis://10\.0\.0\.([1-3])`).ReplaceAllStringFunc(text, func(u string) string { return m.urls[u[len(u)-1]-'1'] })
}

// ran waits until something has written that it runs, and returns its process and redlock's.
func (m *machine) ran(t *testing.T, p *ofBlock) (pid, parent int) {
	t.Helper()
	p.until(t, func() bool {
		text, _ := os.ReadFile(filepath.Join(m.dir, "ran"))
		n, _ := fmt.Sscanf(string(text), "%d %d\n", &pid, &parent)
		return n == 2 && strings.HasSuffix(string(text), "\n")
	})
	return pid, parent
}

func (p *ofBlock) until(t *testing.T, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-p.ended:
			t.Fatalf("it ended with %d\n%s", p.code, p.out.String())
		case <-time.After(time.Millisecond):
		}
	}
}

// Shell lines, crontabs and units of the documents run as they are written: in a shell, and in the little that cron and
// systemd give to a job. The folder that stands for the machine, free ports and the addresses of members are ours.
// Cost: 2 s, of a process for each line.
func TestBlocksOfDocumentsRun(t *testing.T) {
	t.Parallel()
	unraced(t)
	rt.Needs(t)
	for _, b := range rt.Must(blocks.Of(repository, "sh", "crontab", "systemd"))(t) {
		m := newMachine(t)
		where := fmt.Sprintf("%s:%d", b.Document, b.Line)
		switch b.Kind {
		case "sh":
			env := []string{"HOME=" + m.dir, "PATH=/usr/local/bin:" + os.Getenv("PATH"), "REDLOCK_MEMBERS=" + strings.Join(m.urls, ",")}
			p := m.run(t, env, "/bin/sh", "-ec", b.Text)
			<-p.ended
			assert.Zero(t, p.code, "%s\n%s", where, &p.out)
		case "crontab":
			env := []string{"HOME=" + m.dir, "LOGNAME=job", "SHELL=/bin/sh", "PATH=/usr/bin:/bin"}
			for _, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
				if name := regexp.MustCompile(`^\w+=`).FindString(line); name != "" {
					env = append(env, line) // the last one counts
					continue
				}
				job := regexp.MustCompile(`^(?:[\d*/,-]+\s+){5}([^%]+)$`).FindStringSubmatch(line) // cron takes % for the end of a line
				require.NotNil(t, job, "%s: %s", where, line)
				p := m.run(t, env, "/bin/sh", "-c", job[1])
				if strings.Contains(line, "--at-least") { // the job has run, and the lock is held on
					pid, redlock := m.ran(t, p)
					p.until(t, func() bool { return syscall.Kill(pid, 0) != nil })
					require.NoError(t, syscall.Kill(redlock, syscall.SIGTERM))
				}
				<-p.ended
				assert.Zero(t, p.code, where)
				assert.Empty(t, p.out.String(), "%s: cron would send mail", where)
			}
		case "systemd":
			unit := filepath.Join(m.dir, "scheduler.service")
			require.NoError(t, os.WriteFile(unit, []byte(m.here(b.Text)), 0o600))
			if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
				said, _ := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", unit).CombinedOutput()
				assert.NotContains(t, string(said), "scheduler.service", where) // it may say more of other units
			}
			value := func(key string) string {
				return regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(b.Text)[1]
			}
			p := m.run(t, []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", value("Environment")}, strings.Fields(value("ExecStart"))...)
			_, redlock := m.ran(t, p)
			require.NoError(t, syscall.Kill(redlock, syscall.SIGTERM))
			<-p.ended
			assert.Equal(t, value("SuccessExitStatus"), strconv.Itoa(p.code), "%s\n%s", where, &p.out)
		}
	}
}

// Addresses of members in the documents are such as Open takes.
func TestURLsOfDocumentsAreAccepted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	seen := 0
	for name, text := range documents(t) {
		for _, url := range regexp.MustCompile("rediss?(?:-cluster|-sentinel|\\+unix)?://[^\\s`\")<>|\\[…]+").FindAllString(text, -1) {
			for _, one := range strings.Split(strings.ReplaceAll(url, ",redis", " redis"), " ") {
				seen++
				client, err := redlock.Open(ctx, []string{one})
				assert.NotErrorIs(t, err, redlock.ErrInput, "%s: %s", name, one)
				if err == nil {
					_ = client.Close()
				}
			}
		}
	}
	assert.GreaterOrEqual(t, seen, 10)
}
