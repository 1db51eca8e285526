package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFlagsBeforeEnvironmentBeforeFileBeforeDefaults(t *testing.T) {
	t.Parallel()
	file := write(t, `{"ttl": "1s", "max_ttl": "40s", "prefix": "file:", "members": ["redis://a", "redis://b"], "drift": 0.02, "interop": true}`)
	s := rt.Must(Load(map[string]string{"ttl": "3s"}, env("REDLOCK_TTL", "2s", "REDLOCK_MAX_TTL", "50s"), file))(t)
	assert.False(t, s.TTL != 3*time.Second || s.MaxTTL != 50*time.Second || s.Prefix != "file:" || s.MaxHold != 24*time.Hour || s.Drift != 0.02 || !s.Interop, "%+v", s)
	from := map[string]string{}
	for _, v := range s.Show() {
		from[v.Name] = v.From
	}
	for name, want := range map[string]string{"ttl": "flag", "max-ttl": "environment", "prefix": "file", "max-hold": "default", "username": "not set"} {
		assert.False(t, from[name] != want, "%s comes from %q, want %q", name, from[name], want)
	}
}

// Every setting has a name in all three places, none of them for a password on the command line.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range Options {
		assert.False(t, !o.NoFlag && strings.Contains(o.Name, "password") && o.Name != "password-file", "a flag for a secret: %s", o.Name)
		assert.False(t, o.Help == "" || o.Env() != strings.ToUpper("redlock_"+o.key()), "%+v", o)
	}
}

const canary = "c4n4ry"

// No way of looking at settings, and no mistake in them, shows a secret.
func TestNothingSecretIsShown(t *testing.T) {
	t.Parallel()
	all := env("REDLOCK_MEMBERS", "redis://user:"+canary+"@a:1/2,redis://:"+canary+"@b,redis://c:3?db=1,redis-cluster://u:"+canary+"@d:1,e:2,redis-sentinel://f,g/m?sentinel_password="+canary+"&sentinel_user=s", "REDLOCK_PASSWORD", canary)
	s := rt.Must(Load(nil, all, ""))(t)
	require.Len(t, s.Members, 5, "%d members", len(s.Members))
	shown, _ := json.Marshal(s.Show())
	assert.False(t, strings.Contains(string(shown), canary) || strings.Contains(fmt.Sprintf("%+v", s.Show()), canary), "shown: %s", shown)
	for _, want := range []string{"redis://user:******@a:1/2", "redis://:******@b", "redis://c:3?db=1", "redis-cluster://u:******@d:1,e:2", "redis-sentinel://f,g/m?sentinel_password=******"} {
		assert.Contains(t, string(shown), want, "%s lacks %s", shown, want)
	}
	for _, u := range []string{
		"redis://u:" + canary + "/x@host", "http://u:" + canary + "@host", "redis://u:" + canary + "@host:port", "redis://" + canary + "@", "//" + canary,
		"redis://u:" + canary + "#@host", "redis://h/?password=" + canary,
	} {
		_, err := Load(nil, env("REDLOCK_MEMBERS", u), "")
		assert.False(t, err == nil || strings.Contains(err.Error(), canary), "a wrong URL: %v", err)
		assert.False(t, strings.Contains(Redact(u), canary) && strings.Contains(u, "@"), "redacted: %s", Redact(u))
	}
	for name, value := range map[string]string{"REDLOCK_TTL": canary, "REDLOCK_DRIFT": canary, "REDLOCK_INTEROP": canary, "REDLOCK_RESTART_GUARD": canary} {
		if _, err := Load(nil, env(name, value), ""); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUserIsPutIntoURLsThatHaveNone(t *testing.T) {
	t.Parallel()
	file := write(t, "p@ss/w#rd\nsecond line\n")
	members := "redis://a:1,redis://:own@b:2,rediss-cluster://c:1,d:2/?db=0,redis://e:3?password_file=" + file
	named := "password_file=" + url.QueryEscape(file)
	for want, vars := range map[string][]string{
		"redis://app:p%40ss@a:1 redis://:own@b:2 rediss-cluster://app:p%40ss@c:1,d:2/?db=0 redis://e:3?password_file=" + file: {
			"REDLOCK_USERNAME", "app", "REDLOCK_PASSWORD", "p@ss"},
		"redis://app@a:1?" + named + " redis://:own@b:2 rediss-cluster://app@c:1,d:2/?db=0&" + named + " redis://e:3?password_file=" + file: {
			"REDLOCK_USERNAME", "app", "REDLOCK_PASSWORD_FILE", file},
		"redis://a:1?" + named + " redis://:own@b:2 rediss-cluster://c:1,d:2/?db=0&" + named + " redis://e:3?password_file=" + file: {
			"REDLOCK_PASSWORD_FILE", file},
	} {
		s := rt.Must(Load(nil, env(append(vars, "REDLOCK_MEMBERS", members)...), ""))(t)
		assert.Equal(t, want, strings.Join(s.URLs(), " "))
		for _, u := range s.URLs() {
			if target, err := node.ParseTarget(u); err != nil {
				t.Errorf("%s: %v", u, err)
			} else if u != "redis://:own@b:2" && target.Config.Username != "" && target.Config.Password == "" {
				t.Errorf("%s: no password", u)
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	empty := write(t, "\n")
	for _, tc := range []struct {
		flags map[string]string
		env   []string
		file  string
		want  string
		flag  bool
	}{
		{flags: map[string]string{"members": "redis://:p@h"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis://h,redis://u:p@h"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis://u:p/w@h"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis://u@v:p@h"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis-sentinel://h/m?sentinel_password=p"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis-sentinel://h/m?sentinel%5Fpassword=p"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"members": "redis://h?db=1&password=p"}, want: "every user of this machine can read", flag: true},
		{flags: map[string]string{"ttl": "1h"}, want: "raise --max-ttl", flag: true},
		{flags: map[string]string{"max-ttl": "10s", "ttl": "11s"}, want: "raise --max-ttl", flag: true},
		{env: []string{"REDLOCK_TTL", "1h"}, want: "raise --max-ttl"},
		{env: []string{"REDLOCK_MEMBERS", "redis://a:1;redis://b:2"}, want: "separated by commas"},
		{env: []string{"REDLOCK_MEMBERS", "redis-cluster://h,h"}, want: "names a host twice"},
		{flags: map[string]string{"ttl": "5"}, want: "--ttl: the value has no unit", flag: true},
		{flags: map[string]string{"username": "u"}, want: "no password", flag: true},
		{env: []string{"REDLOCK_PASSWORD", "p", "REDLOCK_PASSWORD_FILE", empty}, want: "choose one"},
		{env: []string{"REDLOCK_PASSWORD_FILE", empty}, want: "first line is empty"},
		{env: []string{"REDLOCK_PASSWORD_FILE", "/no/such"}, want: "password file"},
		{env: []string{"REDLOCK_TLS_CERT", "c"}, want: "set both"},
		{env: []string{"REDLOCK_TLS_CA", "c", "REDLOCK_MEMBERS", "redis://h"}, want: "rediss://"},
		{file: `{"password": ["a"`, want: "not a JSON object"},
		{file: `{"members": ["redis://h"]} trailing`, want: "text follows the JSON object"},
		{file: `{"members": ["redis://h"]} {}`, want: "text follows the JSON object"},
		{file: `{"nonsense": 1}`, want: `"nonsense"`},
		{file: `{"members": [1]}`, want: "list of strings"},
		{file: `{"ttl": null}`, want: "must be a string"},
		{file: `{"ttl": "x"}`, want: "in the file, ttl"},
	} {
		path := ""
		if tc.file != "" {
			path = write(t, tc.file)
		}
		_, err := Load(tc.flags, env(tc.env...), path)
		var e *Error
		assert.False(t, !errors.As(err, &e) || e.Flag != tc.flag || !strings.Contains(e.Problem, tc.want), "%+v: %v", tc, err)
	}
	s := &Settings{TLSCA: empty}
	if _, err := s.TLS(); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("%v", err)
	}
	s = &Settings{TLSCert: empty, TLSKey: empty}
	assert.Error(t, rt.Err(s.TLS()), "a wrong certificate passes")
}

// A user is no secret, and where the password is to be found is none either.
func TestUsersMayBeOnTheCommandLine(t *testing.T) {
	t.Setenv("MYPW", canary)
	file := write(t, canary+"\n")
	for _, u := range []string{
		"redis://locker@h?password_env=MYPW", "redis://locker@h/0?db=0&password_file=" + file,
		"redis-cluster://locker@h:1,g:2?password_env=MYPW", "redis-sentinel://locker@h:1,g:2/m?password_env=MYPW&sentinel_password_env=MYPW",
	} {
		assert.NoError(t, rt.Err(Load(map[string]string{"members": u}, env(), "")), "%s", u)
	}
	// What may be a password that lacks its colon is not told.
	for _, u := range []string{"redis://" + canary + "@h:x", "redis://" + canary + "@", "redis://" + canary + "@h?password_env=NONE"} {
		s, err := Load(map[string]string{"members": u}, env(), "")
		assert.False(t, err != nil && strings.Contains(err.Error(), canary), "told: %v", err)
		assert.False(t, s != nil && strings.Contains(fmt.Sprint(s.Show()), canary), "shown: %v", s.Show())
	}
}

func TestPasswordFileThatOthersCanRead(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode here: run it on a Unix system")
	}
	file := write(t, canary+"\n")
	for mode, warnings := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o604: 1} {
		require.NoError(t, os.Chmod(file, mode))
		s, err := Load(nil, env("REDLOCK_PASSWORD_FILE", file), "")
		assert.False(t, err != nil || len(s.Warnings) != warnings || strings.Contains(strings.Join(s.Warnings, ""), canary),
			"mode %o: %v, %v", mode, s, err)
		for text, secret := range map[string]int{`{"password":"` + canary + `"}`: 1, `{"members":["redis://:` + canary + `@h"]}`: 1, `{"members":"redis://h"}`: 0} {
			conf := write(t, text)
			require.NoError(t, os.Chmod(conf, mode))
			s := rt.Must(Load(nil, env(), conf))(t)
			assert.Len(t, s.Warnings, warnings*secret, "%s, mode %o", text, mode)
		}
	}
}

func TestPasswordOfAPipeIsReadOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no names in /dev/fd here: run it on a Unix system")
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	require.NoError(t, rt.Err(w.WriteString("s3cret\n")))
	require.NoError(t, w.Close())
	s := rt.Must(Load(nil, env("REDLOCK_MEMBERS", "redis://h", "REDLOCK_PASSWORD_FILE", fmt.Sprintf("/dev/fd/%d", r.Fd())), ""))(t)
	assert.Equal(t, []string{"redis://:s3cret@h"}, s.URLs())
}

func TestListOfMembersIsSplitBeforeURLsAlone(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"redis://a, redis://b\r\n\tredis://c\f,\n":                  "redis://a|redis://b|redis://c",
		",redis-cluster://a:1, b:2 ,\nc:3,redis+unix:///my redis/r": "redis-cluster://a:1,b:2,c:3|redis+unix:///my%20redis/r",
		"redis://:correct horse@a redis://u:p , q@b\n":              "redis://:correct%20horse@a|redis://u:p%20,%20q@b",
		" \r\n": "",
	} {
		assert.Equal(t, want, strings.Join(SplitMembers(list), "|"), "%q", list)
	}
}

// What a command may see of the settings is what is no secret, and is known.
func TestOnlySettingsWithoutSecretsArePublic(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]bool{
		"REDLOCK_MEMBERS=redis://a:1,redis-cluster://b,c":                  true,
		"REDLOCK_MEMBERS=redis://me@a?password_file=/run/secret":           true,
		"REDLOCK_MEMBERS=redis://a,redis://:secret@b":                      false,
		"REDLOCK_MEMBERS=redis-sentinel://a/main?sentinel_password=secret": false,
		"REDLOCK_MEMBERS=redis://me:sec/ret@a":                             false,
		"REDLOCK_MEMBERS=redis://secret@@:x":                               false,
		"REDLOCK_MEMBERS=secret":                                           false,
		"REDLOCK_USERNAME=me":                                              true,
		"REDLOCK_PASSWORD_FILE=/run/secret":                                true,
		"REDLOCK_CONFIG=/etc/redlock.json":                                 true,
		"REDLOCK_TTL=10s":                                                  true,
		"REDLOCK_PASSWORD=secret":                                          false,
		"REDLOCK_LEASE=secret":                                             false,
		"REDLOCK_OTHER=secret":                                             false,
	} {
		name, value, _ := strings.Cut(variable, "=")
		assert.Equal(t, want, Public(name, value), variable)
	}
}
