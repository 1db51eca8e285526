package node

import (
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// URLError says what is wrong with a URL, and never quotes it: the text of a URL may hold a password,
// also where the URL is malformed.
type URLError struct {
	Problem string
}

func (e *URLError) Error() string { return "node: redis URL " + e.Problem }

// ParseURL reads
//
//	redis://[user:password@]host[:port][/db][?option=value&...]
//	rediss://...                                    the same over TLS
//	redis+unix://[user:password@]/path/to/socket[?option=value&...]
//
// with the options db, client_name, dial_timeout, write_timeout and stall_timeout (durations of Go,
// such as 500ms). The port defaults to 6379. Special characters of a password are percent-encoded.
// Every error is a *URLError and quotes nothing of the user, the password, the host or a value.
func ParseURL(s string) (Config, error) {
	u, err := url.Parse(s)
	if err != nil { // its text quotes s
		return Config{}, &URLError{"is malformed (does it begin with redis://, and are special characters of the password percent-encoded?)"}
	}
	// A raw / ? or # in the password ends the authority early; what follows is then a piece of the
	// password, and must not be quoted as the name of an option below.
	if strings.Contains(u.Path, "@") || strings.Contains(u.RawQuery, "@") || strings.Contains(u.Fragment, "@") {
		return Config{}, &URLError{"has an @ behind the host: percent-encode special characters of the password"}
	}
	var c Config
	switch u.Scheme {
	case "redis", "rediss":
		err = c.fromHost(u)
	case "redis+unix":
		err = c.fromSocket(u)
	default:
		err = &URLError{"has a scheme other than redis, rediss and redis+unix"}
	}
	if err == nil {
		err = c.fromUser(u)
	}
	if err == nil {
		err = c.fromOptions(u)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) fromHost(u *url.URL) error {
	if u.Opaque != "" {
		return &URLError{"lacks // behind its scheme"}
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return &URLError{"has no host"}
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return &URLError{"has a port outside 1 to 65535"}
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '@' || r == '/' }) {
		return &URLError{"has a host with a special character"}
	}
	c.Network, c.Addr = "tcp", net.JoinHostPort(host, port)
	if u.Scheme == "rediss" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if path := strings.TrimPrefix(u.Path, "/"); path != "" {
		db, err := strconv.ParseUint(path, 10, 31)
		if err != nil {
			return &URLError{"has a path that is not the number of a database"}
		}
		c.DB = int(db)
	}
	return nil
}

func (c *Config) fromSocket(u *url.URL) error {
	if u.Host != "" {
		return &URLError{"of a socket has a host: write redis+unix:///path"}
	}
	if u.Opaque != "" || u.Path == "" || u.Path == "/" {
		return &URLError{"of a socket has no path"}
	}
	if strings.Contains(u.Path, "://") {
		return &URLError{"of a socket has a URL for its path"}
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
	if c.Username != "" && password == "" {
		return &URLError{"has a user without a password (a password alone is written :password@)"}
	}
	return nil
}

func (c *Config) fromOptions(u *url.URL) error {
	if u.Fragment != "" {
		return &URLError{"has a fragment: percent-encode #"}
	}
	options, err := url.ParseQuery(u.RawQuery)
	if err != nil { // its text quotes the query
		return &URLError{"has malformed options"}
	}
	for name, values := range options {
		if len(values) != 1 {
			return &URLError{"has the option " + strconv.Quote(name) + " more than once"}
		}
		if err := c.option(name, values[0], u); err != nil {
			return err
		}
	}
	return nil
}

func (c *Config) option(name, value string, u *url.URL) error {
	wrong := &URLError{"has a wrong value for the option " + strconv.Quote(name)}
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
			return &URLError{`names two databases, in its path and in the option "db"`}
		}
		c.DB = int(db)
		return nil
	case "client_name":
		if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < '!' || r > '~' }) {
			return wrong
		}
		c.ClientName = value
		return nil
	case "dial_timeout":
		return duration(&c.DialTimeout)
	case "write_timeout":
		return duration(&c.WriteTimeout)
	case "stall_timeout":
		return duration(&c.StallTimeout)
	}
	return &URLError{"has an unknown option " + strconv.Quote(name)}
}
