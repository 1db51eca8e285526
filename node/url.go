package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// urlError says what is wrong with a URL. It never quotes the URL, because the text may hold a
// password, even if the URL is malformed.
type urlError struct {
	problem string
}

func (e *urlError) Error() string { return "redis URL " + e.problem }

// parseURL reads the URL of one server: see ParseTarget.
func parseURL(s string) (Config, error) {
	if s == "" {
		return Config{}, &urlError{"is empty: is the variable set that it comes from, as REDLOCK_MEMBERS?"}
	}
	u, err := url.Parse(s)
	if err != nil { // its text quotes s
		return Config{}, malformed(s)
	}
	// A raw / ? or # in the password ends the authority early; what follows is then a piece of the
	// password, and must not be quoted as the name of an option below.
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@") || strings.Contains(u.Fragment, "@") {
		return Config{}, &urlError{"has an @ behind the host: percent-encode special characters of the password"}
	}
	var c Config
	switch u.Scheme {
	case "redis", "rediss":
		err = c.fromHost(u)
	case "redis+unix":
		err = c.fromSocket(u)
	default:
		err = &urlError{"has an unknown scheme: there are redis, rediss, redis+unix, redis-cluster, rediss-cluster, redis-sentinel and rediss-sentinel"}
	}
	if err == nil {
		err = c.fromUser(u)
	}
	if err == nil {
		err = c.fromOptions(u)
	}
	if err == nil && c.Username != "" && c.Password == "" {
		err = &urlError{"has a user without a password (a password alone is written :password@)"}
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// malformed says what is wrong with a URL that is none, as far as that can be seen without quoting
// it.
func malformed(s string) error {
	scheme, rest, _ := strings.Cut(s, "://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	if (scheme == "redis" || scheme == "rediss") && !strings.Contains(tail, "@") {
		if err := oneHost(scheme, host); err != nil {
			return err
		}
		colon := strings.LastIndexByte(host, ':')
		if port := host[colon+1:]; colon >= 0 && !strings.Contains(port, "]") && strings.Trim(port, "0123456789") != "" {
			return &urlError{"is malformed: its port is no number (if that is a piece of the password, percent-encode its special characters, and end it with @)"}
		}
	}
	return &urlError{"is malformed (does it begin with redis://, and are special characters of the password percent-encoded?)"}
}

// oneHost refuses what is no host, with or without a port, and would be looked up as a name.
func oneHost(scheme, host string) error {
	switch {
	case strings.Contains(host, ","):
		return &urlError{"names several hosts: a list of hosts needs " + scheme + "-cluster:// or " + scheme + "-sentinel://, and each of several members a URL of its own"}
	case !strings.Contains(host, "[") && strings.Count(host, ":") > 1:
		return &urlError{"has more than one colon in its host: an IPv6 address needs brackets, as in [::1]:6379"}
	}
	return nil
}

func (c *Config) fromHost(u *url.URL) error {
	if u.Opaque != "" {
		return &urlError{"lacks // behind its scheme"}
	}
	if err := oneHost(u.Scheme, u.Host); err != nil {
		return err
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return &urlError{"has no host"}
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return &urlError{"has a port outside 1 to 65535"}
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("@/[]", r) }) {
		return &urlError{"has a host with a special character"}
	}
	c.Network, c.Addr = "tcp", net.JoinHostPort(host, port)
	if u.Scheme == "rediss" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		db, err := strconv.ParseUint(path, 10, 31)
		if err != nil {
			return &urlError{"has a path that is not the number of a database"}
		}
		c.DB = int(db)
	}
	return nil
}

func (c *Config) fromSocket(u *url.URL) error {
	if u.Host != "" {
		return &urlError{"of a socket has a host: write redis+unix:///path"}
	}
	if u.Opaque != "" || u.Path == "" || u.Path == "/" {
		return &urlError{"of a socket has no path"}
	}
	if strings.Contains(u.Path, "://") {
		return &urlError{"of a socket has a URL for its path"}
	}
	c.Network, c.Addr = "unix", u.Path
	return nil
}

func (c *Config) fromUser(u *url.URL) error {
	if u.User == nil {
		return nil
	}
	password, _ := u.User.Password()
	c.Username, c.Password = u.User.Username(), Secret(password)
	return nil
}

func (c *Config) fromOptions(u *url.URL) error {
	if u.Fragment != "" {
		return &urlError{"has a fragment: percent-encode #"}
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil { // its text quotes the query
		return &urlError{"has malformed options"}
	}
	secure := make(map[string]string)
	for name, values := range options {
		switch {
		case len(values) != 1:
			return &urlError{"has the option " + strconv.Quote(name) + " more than once"}
		case strings.HasPrefix(name, "tls_"):
			secure[name] = values[0]
		default:
			if err := c.option(name, values[0], u); err != nil {
				return err
			}
		}
	}
	return c.secure(secure)
}

// passwordFrom reads a password from where an option says that it is.
func passwordFrom(c *Config, name, value string) error {
	if c.Password != "" {
		return &urlError{"names the password twice, once with the option " + strconv.Quote(name)}
	}
	var text string
	if strings.HasSuffix(name, "_env") {
		text = os.Getenv(value)
	} else {
		c.PasswordFile = value
		b, err := os.ReadFile(value)
		if err != nil {
			return &urlError{"has the option " + strconv.Quote(name) + ", but the file cannot be read: " + reasonOf(err)}
		}
		text = firstLine(b)
	}
	if text == "" {
		return &urlError{"has the option " + strconv.Quote(name) + ", but what it names is empty or not set"}
	}
	c.Password = Secret(text)
	return nil
}

// reasonOf is the reason of an error of package os, without the path.
func reasonOf(err error) string {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return "unknown reason"
}

// secure fills in TLS from the options that begin with tls_.
func (c *Config) secure(options map[string]string) error {
	if len(options) == 0 {
		return nil
	}
	if c.TLS == nil {
		return &urlError{"has options of TLS, but its scheme is not rediss, rediss-cluster or rediss-sentinel"}
	}
	read := func(name string) ([]byte, error) {
		b, err := os.ReadFile(options[name])
		if err != nil {
			return nil, &urlError{"has the option " + strconv.Quote(name) + ", but the file cannot be read: " + reasonOf(err)}
		}
		return b, nil
	}
	for name := range options {
		switch name {
		case "tls_ca":
			pem, err := read(name)
			if err != nil {
				return err
			}
			c.TLS.RootCAs = x509.NewCertPool()
			if !c.TLS.RootCAs.AppendCertsFromPEM(pem) {
				return &urlError{`has the option "tls_ca", but there is no certificate in the file`}
			}
		case "tls_cert", "tls_key":
			if options["tls_cert"] == "" || options["tls_key"] == "" {
				return &urlError{`has one of the options "tls_cert" and "tls_key" without the other`}
			}
			if name == "tls_key" {
				continue
			}
			cert, err := read(name)
			if err != nil {
				return err
			}
			key, err := read("tls_key")
			if err != nil {
				return err
			}
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil { // its text holds nothing of the key, but need not be relied on
				return &urlError{`has the options "tls_cert" and "tls_key", but their files are no certificate with its key`}
			}
			c.TLS.Certificates = []tls.Certificate{pair}
		case "tls_server_name":
			if c.TLS.ServerName = options[name]; c.TLS.ServerName == "" {
				return &urlError{`has a wrong value for the option "tls_server_name"`}
			}
		default:
			return &urlError{"has an unknown option " + strconv.Quote(name)}
		}
	}
	return nil
}

func (c *Config) option(name, value string, u *url.URL) error {
	wrong := &urlError{"has a wrong value for the option " + strconv.Quote(name)}
	duration := func(d *time.Duration) error {
		v, err := time.ParseDuration(value)
		if err != nil || v <= 0 {
			return wrong
		}
		*d = v
		return nil
	}
	switch name {
	case "db":
		db, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return wrong
		}
		if c.Network == "tcp" && strings.Trim(u.Path, "/") != "" && c.DB != int(db) {
			return &urlError{`names two databases, in its path and in the option "db"`}
		}
		c.DB = int(db)
		return nil
	case "client_name":
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' }) {
			return wrong
		}
		c.ClientName = value
		return nil
	case "password_env", "password_file":
		return passwordFrom(c, name, value)
	case "min_replicas_ack":
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil {
			return wrong
		}
		c.MinReplicasAck = int(n)
		return nil
	case "dial_timeout":
		return duration(&c.DialTimeout)
	case "stall_timeout":
		return duration(&c.StallTimeout)
	case "addr_map", "failover_lag": // see ParseTarget
		return &urlError{"has the option " + strconv.Quote(name) + ", which is of clusters and Sentinels only"}
	}
	return &urlError{"has an unknown option " + strconv.Quote(name)}
}
