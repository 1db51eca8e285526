package redistest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// program writes a redis-server that tells a version, and ends where it is to speak TLS.
func program(t *testing.T, version, tls string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "redis-server")
	text := "#!/bin/sh\ncase $1 in --version) echo '" + version + "';; *) echo '" + tls + "'; exit 1;; esac\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
	return file
}

func TestBuildIsToldByWhatTheProgramSays(t *testing.T) {
	old := []string{
		"redis 6.2 has no sharded channels", "redis 6.2 has no option for DEBUG", "redis 6.2 has no flags of scripts",
		"redis 6.2 has no ACL DRYRUN", "redis 6.2 has no CLIENT NO-EVICT", "redis 6.2 has scripts in its append-only file",
	}
	for _, c := range []struct {
		version, tls string
		want         redistest.Build
		lacks        []string
		rules        string
	}{
		{"Redis server v=6.2.11 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64 build=f5b1f28871c566b4", "# Failed to configure TLS. Check logs for more info.",
			redistest.Build{Name: "redis", Major: 6, Minor: 2, TLS: true},
			old, "members-6.2.acl"},
		{"Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64 build=0", "*** FATAL CONFIG FILE ERROR (Redis 6.2.14) ***",
			redistest.Build{Name: "redis", Major: 6, Minor: 2},
			append([]string{"redis 6.2 is built without TLS here"}, old...), "members-6.2.acl"},
		{"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0", "# Failed to configure TLS. Check logs for more info.",
			redistest.Build{Name: "redis", Major: 7, Minor: 0, TLS: true}, nil, "members.acl"},
		{"Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150", "# Failed finding TLS support.",
			redistest.Build{Name: "valkey", Major: 9, Minor: 1}, []string{"valkey 9.1 is built without TLS here"}, "members.acl"},
	} {
		got, err := redistest.BuildOf(program(t, c.version, c.tls))
		require.NoError(t, err)
		require.Equal(t, c.want, got)
		var lacks []string
		for _, f := range []redistest.Feature{redistest.TLS, redistest.ShardedChannels, redistest.DebugOption, redistest.ScriptFlags, redistest.DryRun, redistest.NoEvict, redistest.ForgetsScripts} {
			if why := got.Why(f); why != "" {
				lacks = append(lacks, why)
			}
			require.Equal(t, got.Why(f) == "", got.Has(f))
		}
		require.Equal(t, c.lacks, lacks)
		require.Equal(t, c.rules, got.Rules())
	}
	_, err := redistest.BuildOf(program(t, "KeyDB server v=6.3.4 sha=0", ""))
	require.ErrorContains(t, err, "no version")
}
