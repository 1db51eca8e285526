package node

import (
	"cmp"
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

// Ports that are left out of a URL.
const (
	defaultPort         = "6379"
	defaultSentinelPort = "26379"
)

// behindHost finds a host, or one with a port, in front of user and password.
var behindHost = regexp.MustCompile(`^[^:]*,|^[^:]*:[0-9]{1,5},`)

// ParseTarget reads
//
//	redis://[user:password@]host[:port][/db][?option=value&...]
//	rediss://...                                    the same over TLS
//	redis+unix://[user:password@]/path/to/socket[?option=value&...]
//	redis-cluster://[user:password@]host[:port],host[:port]...[?option=value&...]     rediss-cluster://
//	redis-sentinel://[user:password@]host[:port],host[:port].../name[?...]            rediss-sentinel://
//
// with the options
//
//	db, client_name
//	dial_timeout, stall_timeout                    durations of Go, such as 500ms
//	password_env, password_file                    where the password is, instead of in the URL
//	tls_ca, tls_cert, tls_key, tls_server_name     files in PEM form, and the name in the certificate; with rediss
//	min_replicas_ack                               see Config.MinReplicasAck
//
// and the last two also with these:
//
//	addr_map          announced/dialled,announced/dialled... of addresses host:port
//	failover_lag      see Config.FailoverLag
//	sentinel_user, sentinel_password, sentinel_password_env, sentinel_password_file
//
// The port defaults to 6379. A URL percent-encodes the special characters of a password. ParseTarget reads variables and
// files. A node reads password_file again at every dial. User and password of the URL are those of the cluster's servers, or
// of the master; Sentinels have their own, or none. No error quotes anything of the user, the password, the host or a value.
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
		c, err := parseURL(s)
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
		return Target{}, &urlError{"has an @ behind the host: percent-encode special characters of the password"}
	}
	if behindHost.MatchString(user) {
		return Target{}, &urlError{"has user and password behind its first host: they stand before it, once (a comma that is theirs is written %2C)"}
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
			return Target{}, &urlError{"names a host twice"}
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
			return Target{}, &urlError{"lacks the name of the master, behind the hosts: redis-sentinel://host,host/name"}
		case strings.Contains(name, "/"):
			return Target{}, &urlError{"has a / in the name of the master: write redis-sentinel://host,host/name, and a database as the option db"}
		case strings.Contains(name, "#") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' }):
			return Target{}, &urlError{"has a special character in the name of the master: write redis-sentinel://host,host/name"}
		}
		master, path = name, ""
	} else if strings.Trim(path, "/") != "" {
		return Target{}, &urlError{"of a cluster has a path: a Redis Cluster has no databases"}
	}
	sentinels := &Sentinels{Addrs: hostList, Master: master}
	query, err := t.ownOptions(query, sentinels)
	if err != nil {
		return Target{}, err
	}
	// The rest is that of one server. The host is replaced below.
	lag := cmp.Or(t.Config.FailoverLag, defaultLag(t.Kind))
	if t.Config, err = parseURL(plain + user + "host" + path + query); err != nil {
		return Target{}, err
	}
	t.Config.Addr, t.Config.FailoverLag, t.Config.kind = "", lag, t.Kind
	if t.Kind == BySentinel {
		if sentinels.Config.Username != "" && sentinels.Config.Password == "" {
			return Target{}, &urlError{`has the option "sentinel_user" without a password for it`}
		}
		sentinels.Config.TLS, sentinels.Config.kind, sentinels.Dial = t.Config.TLS, BySentinel, t.Dial
		t.Config.Sentinels, t.Dial = sentinels, nil
	} else {
		t.Seeds = hostList
	}
	if t.Kind == RedisCluster && t.Config.DB != 0 {
		return Target{}, &urlError{"of a cluster has a database: a Redis Cluster has none but 0"}
	}
	return t, nil
}

// hostPort checks one host of a list with the rules of parseURL.
func hostPort(host, port string) (string, error) {
	if host == "" || strings.ContainsAny(host, "/?#@%") {
		return "", &urlError{"has an empty host in its list, or one with a special character"}
	}
	if err := oneHost("", host); err != nil {
		return "", err
	}
	u, err := url.Parse("redis://" + host)
	if err != nil {
		return "", &urlError{"has a malformed host in its list, or a port that is no number"}
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
	"db", "client_name", "password_env", "password_file", "min_replicas_ack", "dial_timeout", "stall_timeout",
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
			return "", &urlError{"has an unknown option; write an & in a password as %26"}
		}
		own := name == "addr_map" || name == "failover_lag" || t.Kind == BySentinel && strings.HasPrefix(name, "sentinel_")
		if !own {
			others = append(others, part)
			continue
		}
		if seen[name] {
			return "", &urlError{"has the option " + strconv.Quote(name) + " more than once"}
		}
		seen[name] = true
		text, err := url.QueryUnescape(value)
		if err != nil {
			return "", &urlError{"has malformed options"}
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
				return &urlError{`has a wrong value for the option "addr_map": write announced/dialled,announced/dialled`}
			}
			if t.Dial[announced] != "" {
				return &urlError{`has the option "addr_map", which maps an address twice`}
			}
			t.Dial[announced] = dialled
		}
	case "failover_lag":
		lag, err := time.ParseDuration(value)
		if err != nil || lag < 0 {
			return &urlError{`has a wrong value for the option "failover_lag"`}
		}
		if t.Config.FailoverLag = lag; lag == 0 {
			t.Config.FailoverLag = -1
		}
	case "sentinel_user":
		s.Config.Username = value
	case "sentinel_password":
		if s.Config.Password != "" {
			return &urlError{"names the password of the Sentinels twice"}
		}
		s.Config.Password = Secret(value)
	case "sentinel_password_env", "sentinel_password_file":
		return passwordFrom(&s.Config, name, value)
	default:
		return &urlError{"has an unknown option " + strconv.Quote(name)}
	}
	return nil
}
