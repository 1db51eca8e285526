package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// Query asks one server something on a connection of its own, and closes the connection: who is the
// master, how a cluster is made up. An error reply is an element of Kind '-' with its text in Str.
// ctx and Config.DialTimeout bound Query.
func Query(ctx context.Context, c Config, cmds ...[]byte) ([]member.Reply, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	var d dialer
	d.to(c, c.Addr)
	whole, asked, began := ctx, 0, time.Now()
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	l, err := d.dial(ctx, c.Addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Addr, err)
	}
	stop := context.AfterFunc(ctx, l.cut)
	defer stop()
	replies := make([]member.Reply, len(cmds))
	failed := l.write(slices.Concat(cmds...))
	if failed != nil {
		l.cut()
	}
	l.read(func(br *bufio.Reader) { // returns only after that
		defer l.cut()
		if failed != nil {
			return
		}
		for ; asked < len(replies); asked++ {
			if failed = readReply(br, &replies[asked], 0); failed != nil {
				return
			}
		}
	})
	if failed != nil && ctx.Err() != nil {
		failed = resp.Silence(ctx, cmds[min(asked, len(cmds)-1)], began)
	}
	if failed != nil {
		return nil, fmt.Errorf("%s: %w", c.Addr, d.unlessTLS(whole, c.Addr, failed))
	}
	return replies, nil
}

// Refusal classifies an error reply that Query returned.
func Refusal(r *member.Reply) *member.ReplyError {
	if r.Kind != '-' {
		return nil
	}
	return classify(string(r.Str))
}

// Expect explains the error of a server that was asked what only a server of the kind want knows.
// If the server tells that it is of another kind, Expect returns a SchemeError. It returns any
// other error as it is.
func Expect(ctx context.Context, c Config, want TargetKind, err error) error {
	var refused *member.ReplyError
	if !errors.As(err, &refused) {
		return err
	}
	switch text := refused.Text; {
	case strings.Contains(text, "cluster support disabled"):
		return found("standalone", want, c.TLS != nil, refused)
	case strings.Contains(text, "not allowed in cluster mode"):
		return found("cluster", want, c.TLS != nil, refused)
	case !strings.HasPrefix(text, "ERR unknown command") && !strings.Contains(text, "DB index is out of range"):
		return err // (From Valkey 9.0 on, a server of a cluster knows SELECT, and has one database.)
	}
	c.DB = 0
	replies, failed := Query(ctx, c, infoServer)
	if failed != nil {
		return err
	}
	if other := found(modeOf(replies[0].Str), want, c.TLS != nil, refused); other != nil {
		return other
	}
	return err
}
