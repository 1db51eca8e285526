package node

import (
	"net/url"
	"strings"
)

// Target is what a URL of a member names: one server, a whole Redis Cluster, or a master that Sentinels
// watch.
type Target struct {
	Kind   TargetKind
	Config Config // of one server; else what all connections have in common, without Addr
	// Seeds are servers of the cluster, or Sentinels: host:port.
	Seeds []string
	// Master is the name that the Sentinels know the master by.
	Master string
	// Dial maps announced addresses to those that are dialled.
	Dial map[string]string
	// Sentinel is how to reach the Sentinels, without Addr.
	Sentinel Config
}

// TargetKind is a kind of member.
type TargetKind uint8

const (
	OneServer TargetKind = iota
	RedisCluster
	BySentinel
)

// Ports that are left out of a URL.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// ParseTarget reads what ParseURL does, and
//
//	redis-cluster://[user:password@]host[:port],host[:port]...[?option=value&...]     rediss-cluster://
//	redis-sentinel://[user:password@]host[:port],host[:port].../name[?...]            rediss-sentinel://
//
// with one option more, addr_map=announced/dialled,announced/dialled... of addresses host:port. Errors as
// ParseURL's.
func ParseTarget(s string) (Target, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	var t Target
	plain := "redis://"
	switch {
	case ok && (scheme == "redis-cluster" || scheme == "rediss-cluster"):
		t.Kind = RedisCluster
	case ok && (scheme == "redis-sentinel" || scheme == "rediss-sentinel"):
		t.Kind = BySentinel
	default:
		c, err := ParseURL(s)
		return Target{Config: c}, err
	}
	if strings.HasPrefix(scheme, "rediss") {
		plain = "rediss://"
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	if strings.Contains(strings.TrimSuffix(user, "@"), "@") || strings.Contains(tail, "@") {
		return Target{}, &URLError{"has an @ behind the host: percent-encode special characters of the password"}
	}
	port := defaultPort
	if t.Kind == BySentinel {
		port = defaultSentinelPort
	}
	seen := make(map[string]bool)
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host, port)
		if err != nil {
			return Target{}, err
		}
		if seen[addr] {
			return Target{}, &URLError{"names a host twice"}
		}
		seen[addr] = true
		t.Seeds = append(t.Seeds, addr)
	}
	path, query, _ := strings.Cut(tail, "?")
	if t.Kind == BySentinel {
		name, err := url.PathUnescape(strings.TrimPrefix(path, "/"))
		if err != nil || name == "" || strings.ContainsAny(name, "/#") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }) {
			return Target{}, &URLError{"lacks the name of the master, behind the hosts: redis-sentinel://host,host/name"}
		}
		t.Master, path = name, ""
	} else if strings.Trim(path, "/") != "" {
		return Target{}, &URLError{"of a cluster has a path: a Redis Cluster has no databases"}
	}
	query, err := t.ownOptions(query)
	if err != nil {
		return Target{}, err
	}
	// The rest is that of one server. The host is replaced below.
	if t.Config, err = ParseURL(plain + user + "host" + path + query); err != nil {
		return Target{}, err
	}
	t.Config.Addr = ""
	if t.Kind == RedisCluster && t.Config.DB != 0 {
		return Target{}, &URLError{"of a cluster has a database: a Redis Cluster has none but 0"}
	}
	return t, nil
}

// hostPort checks one host of a list with the rules of ParseURL.
func hostPort(host, port string) (string, error) {
	if host == "" || strings.ContainsAny(host, "/?#@%") {
		return "", &URLError{"has an empty host in its list, or one with a special character"}
	}
	u, err := url.Parse("redis://" + host)
	if err != nil {
		return "", &URLError{"has a malformed host in its list"}
	}
	var c Config
	if err := c.fromHost(u); err != nil {
		return "", err
	}
	if u.Port() == "" {
		return strings.TrimSuffix(c.Addr, defaultPort) + port, nil
	}
	return c.Addr, nil
}

// ownOptions takes the options out that one server does not have.
func (t *Target) ownOptions(query string) (rest string, _ error) {
	if query == "" {
		return "", nil
	}
	var others []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name != "addr_map" {
			others = append(others, part)
			continue
		}
		if t.Dial != nil {
			return "", &URLError{`has the option "addr_map" more than once`}
		}
		t.Dial = make(map[string]string)
		text, err := url.QueryUnescape(value)
		wrong := &URLError{`has a wrong value for the option "addr_map": write announced/dialled,announced/dialled`}
		if err != nil {
			return "", wrong
		}
		for pair := range strings.SplitSeq(text, ",") {
			from, to, ok := strings.Cut(pair, "/")
			announced, err1 := hostPort(from, defaultPort)
			dialled, err2 := hostPort(to, defaultPort)
			if !ok || err1 != nil || err2 != nil || t.Dial[announced] != "" {
				return "", wrong
			}
			t.Dial[announced] = dialled
		}
	}
	if len(others) == 0 {
		return "", nil
	}
	return "?" + strings.Join(others, "&"), nil
}
