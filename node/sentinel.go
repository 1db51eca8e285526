package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// sighting is what one Sentinel says of the master.
type sighting struct {
	addr  string
	epoch int64 // of the configuration: a failover raises it
}

// ask puts SENTINEL MASTER to one of them.
func (s *Sentinels) ask(ctx context.Context, addr string, command []byte) (sighting, error) {
	replies, err := Query(ctx, s.at(addr), command)
	if err != nil {
		return sighting{}, err
	}
	seen, err := readSighting(&replies[0])
	if err != nil {
		err = Expect(ctx, s.at(addr), BySentinel, err)
	}
	return seen, err
}

// errNoMaster: the Sentinel does not know the name.
var errNoMaster = errors.New("it watches no master of this name")

// readSighting reads the answer to SENTINEL MASTER.
func readSighting(r *member.Reply) (sighting, error) {
	switch {
	case r.Kind == '-' && strings.Contains(string(r.Str), "No such master"):
		return sighting{}, errNoMaster
	case r.Kind == '-':
		return sighting{}, Refusal(r)
	case r.Kind != '*' || len(r.Elems)%2 != 0:
		return sighting{}, protocolError("answer to SENTINEL MASTER")
	}
	var host, port string
	var out sighting
	for i := 0; i < len(r.Elems); i += 2 {
		value := string(r.Elems[i+1].Str)
		switch string(r.Elems[i].Str) {
		case "ip":
			host = value
		case "port":
			port = value
		case "config-epoch":
			out.epoch, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	var ok bool
	if out.addr, ok = announced(host, port); !ok {
		return sighting{}, protocolError("answer to SENTINEL MASTER")
	}
	return out, nil
}

// announced makes an address of what a Sentinel says.
func announced(host, port string) (string, bool) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", false
	}
	if host == "" || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`/@[]"`, r) }) {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// find asks all Sentinels at once, and believes the newest configuration that it hears of from a
// majority, or from those that answer at all before ctx ends.
func (s *Sentinels) find(ctx context.Context) (string, error) {
	type answer struct {
		at string
		sighting
		err error
	}
	// What is left of ctx is for the connection to the master.
	ask, cancel := context.WithCancel(ctx)
	if end, ok := ctx.Deadline(); ok {
		ask, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	answers := make(chan answer, len(s.Addrs))
	command := resp.Command("SENTINEL", "MASTER", s.Master)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for _, addr := range s.Addrs {
		asking.Go(func() {
			a := answer{at: addr}
			a.sighting, a.err = s.ask(ask, addr, command)
			answers <- a
		})
	}
	best, heard := sighting{epoch: -1}, 0
	var errs []error
	for range s.Addrs {
		a := <-answers
		if a.err != nil {
			errs = append(errs, ofSentinel(a.at, a.err))
			continue
		}
		if heard++; a.epoch > best.epoch {
			best = a.sighting
		}
		if heard > len(s.Addrs)/2 {
			break
		}
	}
	if heard == 0 {
		slices.SortFunc(errs, func(x, y error) int { return cmp.Compare(x.Error(), y.Error()) })
		return "", errors.Join(errs...)
	}
	return s.dial(best.addr), nil
}

// where is the address of the server, or of the one that the Sentinels name, and how long it took to
// learn that.
func (d *dialer) where(ctx context.Context) (addr string, spent time.Duration, _ error) {
	if d.cfg.Sentinels == nil {
		return d.cfg.Addr, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	defer cancel()
	began := time.Now()
	addr, err := d.cfg.Sentinels.find(ctx)
	return addr, time.Since(began), err
}

// ofSentinel says which Sentinel an error is of, once: most name the address already.
func ofSentinel(addr string, err error) error {
	if strings.HasPrefix(err.Error(), addr+": ") {
		return fmt.Errorf("sentinel %w", err)
	}
	return fmt.Errorf("sentinel %s: %w", addr, err)
}

func (s *Sentinels) dial(addr string) string {
	if to, ok := s.Dial[addr]; ok {
		return to
	}
	return addr
}
