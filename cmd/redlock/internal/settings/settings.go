// Package settings finds out how a command reaches the members, and which terms all locks share. It
// takes each setting from the flags, else from the environment, else from a file, else the default.
//
// There is no flag for a password. A URL on the command line must not hold one, because every user
// of the machine can read command lines. Nothing here prints a secret.
package settings

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
)

// Settings are what was found, and where.
type Settings struct {
	Members       []string // URLs, which may hold passwords
	Username      string
	Password      node.Secret
	PasswordFile  string
	TLSCA         string
	TLSCert       string
	TLSKey        string
	Prefix        string
	Label         string
	TTL           time.Duration
	MaxTTL        time.Duration
	MaxHold       time.Duration
	Drift         float64
	MemberTimeout time.Duration
	DialTimeout   time.Duration
	NoQuorumAfter time.Duration
	RestartGuard  string
	Interop       bool

	// Warnings are about settings that work and should be different.
	Warnings []string

	from map[string]string // name of an option to where its value came from
	once bool              // PasswordFile cannot be read again
	tls  *tls.Config       // once it was read
}

// Error is a setting that cannot work. It quotes nothing that may be secret.
type Error struct {
	Flag    bool // the setting came from the command line
	Problem string
}

func (e *Error) Error() string { return e.Problem }

// Option is one setting, the same by flag, environment and file.
type Option struct {
	Name    string // of the flag; the file has _ for -, the environment REDLOCK_ and capitals
	Kind    string // what a value looks like, for help
	Help    string
	Default string
	NoFlag  bool // for secrets
	set     func(s *Settings, value string) error
	show    func(s *Settings) string
}

// Env returns the option's name in the environment.
func (o Option) Env() string { return "REDLOCK_" + strings.ToUpper(o.key()) }

func (o Option) key() string { return strings.ReplaceAll(o.Name, "-", "_") }

func text(name, kind, help string, field func(*Settings) *string) Option {
	return Option{Name: name, Kind: kind, Help: help,
		set:  func(s *Settings, v string) error { *field(s) = v; return nil },
		show: func(s *Settings) string { return *field(s) }}
}

func duration(name, def, help string, field func(*Settings) *time.Duration) Option {
	return Option{Name: name, Kind: "duration", Help: help, Default: def,
		set: func(s *Settings, v string) error {
			d, err := Duration(v)
			if err != nil {
				return err
			}
			*field(s) = d
			return nil
		},
		show: func(s *Settings) string { return field(s).String() }}
}

// Duration reads a duration. An error says what is wrong with the value, and does not quote it.
func Duration(v string) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if _, number := strconv.ParseFloat(v, 64); err != nil && number == nil {
		return 0, errors.New("has no unit: write 30s, 5m or 1h")
	}
	if err != nil {
		return 0, errors.New("is not a duration such as 30s")
	}
	return d, nil
}

// Options lists every setting, in the order of the help.
var Options = []Option{
	{
		Name: "members", Kind: "urls", Help: "URLs of the members, separated by commas: redis://host:port, redis-cluster://host:port,…, redis-sentinel://host:port,…/name; rediss… with TLS",
		set: func(s *Settings, v string) error {
			s.Members = SplitMembers(v)
			return nil
		},
		show: func(s *Settings) string {
			var all []string
			for _, m := range s.Members {
				all = append(all, Redact(m))
			}
			return strings.Join(all, ",")
		},
	},
	text("username", "name", "user at the members", func(s *Settings) *string { return &s.Username }),
	{
		Name: "password", Kind: "secret", NoFlag: true, Help: "password at the members",
		set:  func(s *Settings, v string) error { s.Password = node.Secret(v); return nil },
		show: func(s *Settings) string { return fmt.Sprint(s.Password) },
	},
	text("password-file", "file", "file whose first line is the password at the members", func(s *Settings) *string { return &s.PasswordFile }),
	text("tls-ca", "file", "PEM file of the authorities that sign the members' certificates", func(s *Settings) *string { return &s.TLSCA }),
	text("tls-cert", "file", "PEM file of our certificate", func(s *Settings) *string { return &s.TLSCert }),
	text("tls-key", "file", "PEM file of its key", func(s *Settings) *string { return &s.TLSKey }),
	text("prefix", "text", "put before the name of every lock, for several environments on the same members: prod: or test:; output leaves it out", func(s *Settings) *string { return &s.Prefix }),
	text("label", "text", "what this process is: inspect, ls and callers that are refused see it, with host and process id", func(s *Settings) *string { return &s.Label }),
	duration("ttl", "30s", "length of a lease; a holder that dies blocks the lock for that long. Nobody gave it: run, lead and hold are content with --max-ttl", func(s *Settings) *time.Duration { return &s.TTL }),
	duration("max-ttl", "30s", "the longest lease of any client; default: what the members know, else 30s", func(s *Settings) *time.Duration { return &s.MaxTTL }),
	duration("max-hold", "24h", "longest time that a lease is renewed; negative: no limit", func(s *Settings) *time.Duration { return &s.MaxHold }),
	{
		Name: "drift", Kind: "share", Default: "0.01", Help: "share of a lease given up because clocks disagree; the same for all clients",
		set: func(s *Settings, v string) (err error) {
			if s.Drift, err = strconv.ParseFloat(v, 64); err != nil {
				return errors.New("is not a number such as 0.01")
			}
			return nil
		},
		show: func(s *Settings) string { return strconv.FormatFloat(s.Drift, 'g', -1, 64) },
	},
	duration("member-timeout", "200ms", "patience with a member whose vote matters", func(s *Settings) *time.Duration { return &s.MemberTimeout }),
	duration("dial-timeout", "1s", "patience with a member when connecting", func(s *Settings) *time.Duration { return &s.DialTimeout }),
	duration("no-quorum-after", "2s", "how long to wait, at the start and for the lock, while no majority can be asked; negative: for ever", func(s *Settings) *time.Duration { return &s.NoQuorumAfter }),
	{
		Name: "restart-guard", Kind: "mode", Default: "quarantine", Help: "members that may have forgotten: quarantine, strict or off; the same for all clients",
		set: func(s *Settings, v string) error {
			if _, ok := guards[v]; !ok {
				return errors.New("must be quarantine, strict or off")
			}
			s.RestartGuard = v
			return nil
		},
		show: func(s *Settings) string { return s.RestartGuard },
	},
	{
		Name: "interop", Kind: "bool", Default: "false", Help: "share locks with Redisson",
		set: func(s *Settings, v string) (err error) {
			if s.Interop, err = strconv.ParseBool(v); err != nil {
				return errors.New("must be true or false")
			}
			return nil
		},
		show: func(s *Settings) string { return strconv.FormatBool(s.Interop) },
	},
}

var guards = map[string]redlock.RestartGuard{"quarantine": redlock.Quarantine, "strict": redlock.Strict, "off": redlock.GuardOff}

// between separates members: a comma, or white space, before the scheme of another URL, or at an end.
var (
	between   = regexp.MustCompile(`[,\s]+(?:$|[A-Za-z][A-Za-z0-9+.-]*://)`)
	hosts     = regexp.MustCompile(`\s*,\s*`)
	semicolon = regexp.MustCompile(`;\s*[A-Za-z][A-Za-z0-9+.-]*://`)
)

const separators = ", \r\n\t\f"

// SplitMembers reads a list of members. It splits only before what begins a new URL, because
// commas also separate the hosts of one URL, and a password or a path may have a space.
func SplitMembers(v string) (all []string) {
	v = strings.TrimLeft(v, separators)
	for v != "" {
		one, rest := v, ""
		if at := between.FindStringIndex(v); at != nil {
			one, rest = v[:at[0]], strings.TrimLeft(v[at[0]:], separators)
		}
		behind := strings.LastIndexByte(one, '@') + 1 // a comma before it is the password's
		one = one[:behind] + hosts.ReplaceAllString(one[behind:], ",")
		all = append(all, strings.ReplaceAll(one, " ", "%20"))
		v = rest
	}
	return all
}

// Load merges all sources. flags has the options that were given on the command line, getenv is
// os.LookupEnv, and file is a path or "".
func Load(flags map[string]string, getenv func(string) (string, bool), file string) (*Settings, error) {
	s := &Settings{from: make(map[string]string)}
	fromFile, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if fromFile["password"] != "" || slices.ContainsFunc(SplitMembers(fromFile["members"]), hasPassword) {
		s.warnOfReaders("configuration file, which has a password", file)
	}
	for _, o := range Options {
		value, source, isFlag := o.Default, "default", false
		if v, ok := fromFile[o.key()]; ok {
			value, source = v, "file"
		}
		if v, ok := getenv(o.Env()); ok && v != "" {
			value, source = v, "environment"
		}
		if v, ok := flags[o.Name]; ok {
			value, source, isFlag = v, "flag", true
		}
		s.from[o.Name] = source
		if value == "" && source == "default" {
			s.from[o.Name] = "not set"
			continue
		}
		if err := o.set(s, value); err != nil {
			where := map[string]string{"file": "in the file, " + o.key(), "environment": o.Env(), "flag": "--" + o.Name}[source]
			return nil, &Error{Flag: isFlag, Problem: where + ": the value " + err.Error()}
		}
	}
	return s, s.check()
}

// readFile reads a JSON object with the names of the options.
func readFile(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, &Error{Problem: "configuration file: " + err.Error()}
	}
	var values map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&values); err != nil { // its text may quote a character, not a value
		return nil, &Error{Problem: "configuration file: not a JSON object: " + err.Error()}
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, &Error{Problem: "configuration file: text follows the JSON object"}
	}
	out := make(map[string]string)
	for key, v := range values {
		if !slices.ContainsFunc(Options, func(o Option) bool { return o.key() == key }) {
			return nil, &Error{Problem: fmt.Sprintf("configuration file: unknown setting %q", key)}
		}
		switch v := v.(type) {
		case string:
			out[key] = v
		case json.Number:
			out[key] = v.String()
		case bool:
			out[key] = strconv.FormatBool(v)
		case []any:
			var parts []string
			for _, e := range v {
				part, ok := e.(string)
				if !ok {
					return nil, &Error{Problem: fmt.Sprintf("configuration file: %q must be a list of strings", key)}
				}
				parts = append(parts, part)
			}
			out[key] = strings.Join(parts, ",")
		default:
			return nil, &Error{Problem: fmt.Sprintf("configuration file: %q must be a string, a number, true, false or a list of strings", key)}
		}
	}
	return out, nil
}

// warnOfReaders looks at a file that was read. It reports whether that can be read again, as no pipe can.
func (s *Settings) warnOfReaders(what, path string) (again bool) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		s.Warnings = append(s.Warnings, fmt.Sprintf("other users of this machine can read the %s (mode %#o): run chmod 600", what, info.Mode().Perm()))
	}
	return err == nil && info.Mode().IsRegular()
}

func (s *Settings) check() error {
	bad := func(option, format string, args ...any) error {
		return &Error{Flag: s.from[option] == "flag", Problem: fmt.Sprintf(format, args...)}
	}
	if s.from["members"] == "flag" && slices.ContainsFunc(s.Members, hasPassword) {
		return bad("members", "--members: every user of this machine can read a password on the command line: use REDLOCK_PASSWORD_FILE, or REDLOCK_MEMBERS")
	}
	if s.PasswordFile != "" {
		if s.Password != "" {
			return bad("password-file", "there is both a password and a password file: choose one")
		}
		raw, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return bad("", "password file: %v", err)
		}
		line, _, _ := strings.Cut(string(raw), "\n")
		if s.Password = node.Secret(strings.TrimRight(line, "\r")); s.Password == "" {
			return bad("", "password file: its first line is empty")
		}
		s.once = !s.warnOfReaders("password file", s.PasswordFile)
	}
	if s.Username != "" && s.Password == "" {
		return bad("username", "there is a username and no password: use REDLOCK_PASSWORD_FILE")
	}
	if (s.TLSCert == "") != (s.TLSKey == "") {
		return bad("tls-cert", "a certificate needs its key, and a key its certificate: set both")
	}
	if s.TLSCA+s.TLSCert != "" && len(s.Members) > 0 && !slices.ContainsFunc(s.Members, func(m string) bool { return strings.HasPrefix(m, "rediss") }) {
		return bad("tls-ca", "there are TLS files, but no member's URL begins with rediss://")
	}
	if s.MaxTTL > 0 && !s.Given("ttl") {
		s.TTL = min(s.TTL, s.MaxTTL)
	}
	if s.MaxTTL > 0 && s.TTL > s.MaxTTL {
		option := "ttl"
		if s.from["max-ttl"] == "flag" {
			option = "max-ttl"
		}
		return bad(option, "--ttl is %v, more than --max-ttl (%v): raise --max-ttl, or use a shorter lease, which is renewed", s.TTL, s.MaxTTL)
	}
	for i, m := range s.Members {
		if semicolon.MatchString(m) {
			return bad("members", "member %d: a semicolon stands before another URL: members are separated by commas", i+1)
		}
		if _, err := node.ParseTarget(m); err != nil {
			return bad("members", "member %d: %v", i+1, err)
		}
	}
	return nil
}

// authority is what stands between :// and the path.
func authority(u string) (scheme, auth, rest string) {
	scheme, rest, _ = strings.Cut(u, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	return scheme, rest[:end], rest[end:]
}

// hasPassword: a user alone is none, and neither is the name of a file or variable that holds one.
func hasPassword(u string) bool {
	_, auth, rest := authority(u)
	if strings.Contains(rest, "@") { // a raw / in a password ends the authority early
		return true
	}
	if at := strings.LastIndex(auth, "@"); at >= 0 && strings.Contains(auth[:at], ":") {
		return true
	}
	_, query, _ := strings.Cut(rest, "?")
	options, err := url.ParseQuery(query)
	for name := range options {
		if strings.HasSuffix(name, "password") {
			return true
		}
	}
	return err != nil
}

// Public reports whether a variable of the environment is a setting that is no secret.
func Public(name, value string) bool {
	if name == "REDLOCK_MEMBERS" {
		return !slices.ContainsFunc(SplitMembers(value), func(m string) bool {
			_, auth, rest := authority(m)
			return hasPassword(m) || !strings.Contains(m, "://") ||
				strings.Contains(auth, "@") && !namesPassword(rest) // perhaps a password that lacks its colon
		})
	}
	return name == "REDLOCK_CONFIG" || slices.ContainsFunc(Options, func(o Option) bool { return o.Env() == name && !o.NoFlag })
}

// The option of a URL that is a secret itself.
const sentinelPassword = "sentinel_password="

// namesPassword: an option of the URL says where the password is.
func namesPassword(rest string) bool {
	return strings.Contains(rest, "?password_") || strings.Contains(rest, "&password_")
}

// Redact returns a URL without what may be secret.
func Redact(u string) string {
	scheme, auth, rest := authority(u)
	if strings.Contains(rest, "@") || !strings.Contains(u, "://") {
		return "(malformed URL, not shown)"
	}
	if head, tail, ok := strings.Cut(rest, sentinelPassword); ok {
		_, tail, more := strings.Cut(tail, "&")
		if rest = head + sentinelPassword + "******"; more {
			rest += "&" + tail
		}
	}
	user, host, found := strings.Cut(auth, "@")
	if !found {
		return scheme + "://" + auth + rest
	}
	name, _, found := strings.Cut(user, ":")
	if !found { // perhaps a password that lacks its colon
		name = ""
	}
	return scheme + "://" + name + ":******@" + host + rest
}

// URLs returns the members' URLs, with the user put in if a URL has none. A password file is put in by
// its name, because a client reads it again whenever it connects; what a pipe held is put in itself.
func (s *Settings) URLs() []string {
	out := make([]string, len(s.Members))
	for i, m := range s.Members {
		scheme, auth, rest := authority(m)
		if s.Password != "" && !strings.Contains(auth, "@") && !namesPassword(rest) {
			user := url.UserPassword(s.Username, string(s.Password)).String() + "@"
			if s.PasswordFile != "" && !s.once {
				if user = ""; s.Username != "" {
					user = url.User(s.Username).String() + "@"
				}
				option := "?"
				if strings.Contains(rest, "?") {
					option = "&"
				}
				rest += option + "password_file=" + url.QueryEscape(s.PasswordFile)
			}
			m = scheme + "://" + user + auth + rest
		}
		out[i] = m
	}
	return out
}

// TLS returns nil if no setting names a file.
func (s *Settings) TLS() (*tls.Config, error) {
	if s.TLSCA+s.TLSCert == "" || s.tls != nil {
		return s.tls.Clone(), nil // of nil it is nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLSCA != "" {
		pem, err := os.ReadFile(s.TLSCA)
		if err != nil {
			return nil, &Error{Problem: "TLS authorities: " + err.Error()}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &Error{Problem: "TLS authorities: no certificate in " + s.TLSCA}
		}
	}
	if s.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(s.TLSCert, s.TLSKey)
		if err != nil {
			return nil, &Error{Problem: "TLS certificate: " + err.Error()}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	s.tls = c
	return c.Clone(), nil
}

// Given reports whether a value of an option was given, by a flag, the environment or the file.
func (s *Settings) Given(option string) bool {
	return s.from[option] != "default" && s.from[option] != "not set"
}

// Config returns the library's Config.
func (s *Settings) Config() (redlock.Config, error) {
	t, err := s.TLS()
	return redlock.Config{
		TTL: s.TTL, MaxTTL: s.MaxTTL, MaxHold: s.MaxHold, Drift: s.Drift, MemberTimeout: s.MemberTimeout,
		DialTimeout: s.DialTimeout, NoQuorumAfter: s.NoQuorumAfter, RestartGuard: guards[s.RestartGuard], Interop: s.Interop, Prefix: s.Prefix, Label: s.Label,
		TLS: t,
	}, err
}

// Shown is one setting for a reader.
type Shown struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // flag, environment, file, default, or not set
}

// Show lists every setting without secrets.
func (s *Settings) Show() []Shown {
	var out []Shown
	for _, o := range Options {
		shown := Shown{Name: o.Name, From: s.from[o.Name]}
		if shown.From != "not set" {
			shown.Value = o.show(s)
		}
		out = append(out, shown)
	}
	return out
}
