package node

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target is what a URL of a member names: one server, a whole Redis Cluster, or a master that
// Sentinels watch.
type Target struct {
	Kind   TargetKind
	Config Config // of one server; else what all connections have in common, without Addr
	// Seeds are servers of the cluster: host:port.
	Seeds []string
	// Dial maps announced addresses of a cluster to those that are dialled.
	Dial map[string]string
}

// Name is the name that the member of this URL has.
func (t Target) Name() string {
	switch t.Kind {
	case RedisCluster:
		return strings.Join(t.Seeds, ",")
	case BySentinel:
		return t.Config.Sentinels.nameOrNone()
	}
	return t.Config.Addr
}

// FailoverLag is the FailoverLag that this kind of member gets by its Config and the defaults. It
// is 0 for one server.
func (t Target) FailoverLag() time.Duration {
	if t.Kind == RedisCluster {
		t.Config.Shard = &Shard{}
	}
	return t.Config.withDefaults().FailoverLag
}

// Ports that are left out of a URL.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// behindHost finds a host, or one with a port, in front of user and password.
var behindHost = regexp.MustCompile(`^[^:]*,|^[^:]*:[0-9]{1,5},`)

// ParseTarget reads what ParseURL does, and
//
//	redis-cluster://[user:password@]host[:port],host[:port]...[?option=value&...]     rediss-cluster://
//	redis-sentinel://[user:password@]host[:port],host[:port].../name[?...]            rediss-sentinel://
//
// with the options of ParseURL and these:
//
//	addr_map          announced/dialled,announced/dialled... of addresses host:port
//	failover_lag      see Config.FailoverLag
//	sentinel_user, sentinel_password, sentinel_password_env, sentinel_password_file
//
// User and password of the URL are those of the cluster's servers, or of the master; Sentinels have
// their own, or none. The errors are those of ParseURL.
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
	if behindHost.MatchString(user) {
		return Target{}, &URLError{"has user and password behind its first host: they stand before it, once (a comma that is theirs is written %2C)"}
	}
	port := defaultPort
	if t.Kind == BySentinel {
		port = defaultSentinelPort
	}
	var hostList []string
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
		hostList = append(hostList, addr)
	}
	master := ""
	path, query, _ := strings.Cut(tail, "?")
	if t.Kind == BySentinel {
		name, err := url.PathUnescape(strings.TrimPrefix(path, "/"))
		switch {
		case err != nil || name == "":
			return Target{}, &URLError{"lacks the name of the master, behind the hosts: redis-sentinel://host,host/name"}
		case strings.Contains(name, "/"):
			return Target{}, &URLError{"has a / in the name of the master: write redis-sentinel://host,host/name, and a database as the option db"}
		case strings.Contains(name, "#") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }):
			return Target{}, &URLError{"has a special character in the name of the master: write redis-sentinel://host,host/name"}
		}
		master, path = name, ""
	} else if strings.Trim(path, "/") != "" {
		return Target{}, &URLError{"of a cluster has a path: a Redis Cluster has no databases"}
	}
	sentinels := &Sentinels{Addrs: hostList, Master: master}
	query, err := t.ownOptions(query, sentinels)
	if err != nil {
		return Target{}, err
	}
	// The rest is that of one server. The host is replaced below.
	lag := t.Config.FailoverLag
	if t.Config, err = ParseURL(plain + user + "host" + path + query); err != nil {
		return Target{}, err
	}
	t.Config.Addr, t.Config.FailoverLag, t.Config.kind = "", lag, t.Kind
	if t.Kind == BySentinel {
		if sentinels.Config.Username != "" && sentinels.Config.Password == "" {
			return Target{}, &URLError{`has the option "sentinel_user" without a password for it`}
		}
		sentinels.Config.TLS, sentinels.Dial = t.Config.TLS, t.Dial
		t.Config.Sentinels, t.Dial = sentinels, nil
	} else {
		t.Seeds = hostList
	}
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
	if err := oneHost("", host); err != nil {
		return "", err
	}
	u, err := url.Parse("redis://" + host)
	if err != nil {
		return "", &URLError{"has a malformed host in its list, or a port that is no number"}
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

// allOptions are the names that a URL of any kind may have.
var allOptions = []string{
	"db", "client_name", "password_env", "password_file", "min_replicas_ack", "dial_timeout", "write_timeout", "stall_timeout",
	"tls_ca", "tls_cert", "tls_key", "tls_server_name", "addr_map", "failover_lag",
	"sentinel_user", "sentinel_password", "sentinel_password_env", "sentinel_password_file",
}

// ownOptions takes the options out that one server does not have.
func (t *Target) ownOptions(query string, s *Sentinels) (rest string, _ error) {
	if query == "" {
		return "", nil
	}
	var others []string
	seen := make(map[string]bool)
	// What follows an & in a password looks like an option: it must not be quoted.
	secret := strings.Contains(query, "sentinel_password=")
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if secret && !slices.Contains(allOptions, name) {
			return "", &URLError{"has an unknown option; write an & in a password as %26"}
		}
		own := name == "addr_map" || name == "failover_lag" || t.Kind == BySentinel && strings.HasPrefix(name, "sentinel_")
		if !own {
			others = append(others, part)
			continue
		}
		if seen[name] {
			return "", &URLError{"has the option " + strconv.Quote(name) + " more than once"}
		}
		seen[name] = true
		text, err := url.QueryUnescape(value)
		if err != nil {
			return "", &URLError{"has malformed options"}
		}
		if err := t.ownOption(name, text, s); err != nil {
			return "", err
		}
	}
	if len(others) == 0 {
		return "", nil
	}
	return "?" + strings.Join(others, "&"), nil
}

func (t *Target) ownOption(name, value string, s *Sentinels) error {
	switch name {
	case "addr_map":
		t.Dial = make(map[string]string)
		for pair := range strings.SplitSeq(value, ",") {
			from, to, ok := strings.Cut(pair, "/")
			announced, err1 := hostPort(from, defaultPort)
			dialled, err2 := hostPort(to, defaultPort)
			if !ok || err1 != nil || err2 != nil {
				return &URLError{`has a wrong value for the option "addr_map": write announced/dialled,announced/dialled`}
			}
			if t.Dial[announced] != "" {
				return &URLError{`has the option "addr_map", which maps an address twice`}
			}
			t.Dial[announced] = dialled
		}
	case "failover_lag":
		lag, err := time.ParseDuration(value)
		if err != nil || lag < 0 {
			return &URLError{`has a wrong value for the option "failover_lag"`}
		}
		if t.Config.FailoverLag = lag; lag == 0 {
			t.Config.FailoverLag = -1
		}
	case "sentinel_user":
		s.Config.Username = value
	case "sentinel_password":
		if s.Config.Password != "" {
			return &URLError{"names the password of the Sentinels twice"}
		}
		s.Config.Password = Secret(value)
	case "sentinel_password_env", "sentinel_password_file":
		return passwordFrom(&s.Config, name, value)
	default:
		return &URLError{"has an unknown option " + strconv.Quote(name)}
	}
	return nil
}
