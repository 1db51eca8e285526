package node

import "github.com/redquorum/redquorum/internal/resp"

// SchemeError says that a server is of another kind than its URL says: a server of a Redis Cluster,
// a server in no cluster, or a Sentinel. Or one of the two speaks TLS, and the other does not.
type SchemeError struct {
	found  string // what is there, such as "a Sentinel"
	Scheme string // that would fit, such as "redis-sentinel://"
	err    error  // that showed it, if it was an error
}

func (e *SchemeError) Error() string {
	text := "wrong scheme in the URL: this is " + e.found + ", for which it is " + e.Scheme
	if e.err != nil {
		text += " (" + e.err.Error() + ")"
	}
	return text
}

func (e *SchemeError) Unwrap() error { return e.err }

// scheme is that of the URLs of a kind of member.
func (k TargetKind) scheme(secure bool) string {
	s := "redis"
	if secure {
		s = "rediss"
	}
	return s + [...]string{"", "-cluster", "-sentinel"}[k] + "://"
}

// modeOf is what INFO says of the kind of a server. Valkey calls it another name from 8.0 on.
func modeOf(info []byte) string {
	if mode := resp.Field(info, "redis_mode:"); mode != "" {
		return mode
	}
	return resp.Field(info, "server_mode:")
}

// found makes a SchemeError of what redis_mode in INFO says; nil if that is what was expected, or
// is not known.
func found(mode string, want TargetKind, secure bool, err error) error {
	kind, what := want, ""
	switch mode {
	case "sentinel":
		kind, what = BySentinel, "a Sentinel"
	case "cluster":
		kind, what = RedisCluster, "a server of a Redis Cluster"
	case "standalone":
		kind, what = OneServer, "a single server"
	}
	if kind == want {
		return nil
	}
	return &SchemeError{what, kind.scheme(secure), err}
}
