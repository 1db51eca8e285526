package redistest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Build is a redis-server program: its version, and its build options.
type Build struct {
	Name         string // "redis" or "valkey"
	Major, Minor int
	TLS          bool
}

// Feature is what a test needs of a server and some builds lack.
type Feature uint8

const (
	TLS             Feature = iota // encrypted connections, an option of the build
	ShardedChannels                // SSUBSCRIBE, SPUBLISH: from Redis 7.0 on
	DebugOption                    // --enable-debug-command: from Redis 7.0 on; before that DEBUG is always there
	ScriptFlags                    // "#!lua flags=…" in EVAL: from Redis 7.0 on
	DryRun                         // ACL DRYRUN: from Redis 7.0 on
	NoEvict                        // CLIENT NO-EVICT: from Redis 7.0 on
	ForgetsScripts                 // a restart empties the script cache: before Redis 7.0 the append-only file has scripts
)

// Why says which server lacks a feature; it is empty if the server has it.
func (b Build) Why(f Feature) string {
	switch {
	case f == TLS && !b.TLS:
		return b.String() + " is built without TLS here"
	case f == ShardedChannels && !b.from7():
		return b.String() + " has no sharded channels"
	case f == DebugOption && !b.from7():
		return b.String() + " has no option for DEBUG"
	case f == ScriptFlags && !b.from7():
		return b.String() + " has no flags of scripts"
	case f == DryRun && !b.from7():
		return b.String() + " has no ACL DRYRUN"
	case f == NoEvict && !b.from7():
		return b.String() + " has no CLIENT NO-EVICT"
	case f == ForgetsScripts && !b.from7():
		return b.String() + " has scripts in its append-only file"
	}
	return ""
}

// Has reports whether the server has a feature.
func (b Build) Has(f Feature) bool { return b.Why(f) == "" }

// from7: every Valkey has what Redis 7.0 has.
func (b Build) from7() bool { return b.Major >= 7 }

func (b Build) String() string { return fmt.Sprintf("%s %d.%d", b.Name, b.Major, b.Minor) }

// Rules is the shipped ACL file in acl/ whose rules the server knows.
func (b Build) Rules() string {
	if b.Has(ShardedChannels) {
		return "members.acl"
	}
	return "members-6.2.acl"
}

// Installed returns the redis-server in PATH. It asks the program once.
var Installed = sync.OnceValues(func() (Build, error) {
	if err := Available(); err != nil {
		return Build{}, err
	}
	return BuildOf("redis-server")
})

var versionLine = regexp.MustCompile(`^(Redis|Valkey) server v=(\d+)\.(\d+)\.`)

// BuildOf asks a redis-server program what it is.
func BuildOf(program string) (Build, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	said, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return Build{}, fmt.Errorf("redistest: %s --version: %w", program, err)
	}
	m := versionLine.FindStringSubmatch(string(said))
	if m == nil {
		return Build{}, fmt.Errorf("redistest: %s --version: %q is no version", program, said)
	}
	b := Build{Name: strings.ToLower(m[1])}
	b.Major, _ = strconv.Atoi(m[2])
	b.Minor, _ = strconv.Atoi(m[3])
	// A server that is to speak TLS without a certificate ends at once. What it says tells one that knows no TLS.
	said, err = exec.CommandContext(ctx, program, "--port", "0", "--tls-port", "1", "--save", "", "--logfile", "").CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return Build{}, errors.Join(fmt.Errorf("redistest: %s speaks TLS without a certificate", program), context.Cause(ctx))
	}
	b.TLS = !strings.Contains(string(said), "Failed finding TLS support") && !strings.Contains(string(said), "CONFIG FILE ERROR")
	return b, nil
}
