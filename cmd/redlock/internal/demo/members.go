package demo

import (
	"context"
	"fmt"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/node"
)

// own is how many members the demo starts where it is given none.
const own = 5

// members are those of a run: masters, and of the user's also whole clusters and Sentinel groups.
type members struct {
	kind    string
	urls    []string
	names   []string // as clients name them
	cluster *redistest.Cluster
}

func startMembers(ctx context.Context, o Options) (*members, error) {
	switch {
	case len(o.Members) > 0:
		return givenMembers(o.Members)
	case o.Redis:
		return realMembers(ctx)
	}
	return embeddedMembers()
}

func givenMembers(urls []string) (*members, error) {
	m := &members{kind: fmt.Sprintf("members: %d of yours", len(urls)), urls: urls}
	for i, u := range urls {
		t, err := node.ParseTarget(u)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", i+1, err)
		}
		m.names = append(m.names, t.Name())
	}
	return m, nil
}

func embeddedMembers() (*members, error) {
	m := &members{
		kind:    fmt.Sprintf("members: %d embedded Redis servers (miniredis), over TCP on loopback", own),
		cluster: redistest.NewEmbeddedCluster(own),
	}
	for i := range own {
		if err := m.cluster.Embedded(i).ServeTCP("127.0.0.1:0"); err != nil {
			_ = m.cluster.Close()
			return nil, fmt.Errorf("cannot listen on loopback: %w", err)
		}
	}
	m.list()
	return m, nil
}

func realMembers(ctx context.Context) (*members, error) {
	if err := redistest.Available(); err != nil {
		return nil, fmt.Errorf("%w, or run without --redis: the embedded members need nothing", err)
	}
	cluster, err := redistest.StartRealCluster(ctx, own, redistest.RealConfig{Persist: redistest.AppendAlways})
	if err != nil {
		return nil, err
	}
	m := &members{
		kind:    fmt.Sprintf("members: %d redis-server processes on loopback, appendfsync always", own),
		cluster: cluster,
	}
	m.list()
	return m, nil
}

func (m *members) list() {
	for _, s := range m.cluster.Servers {
		m.urls = append(m.urls, "redis://"+s.Addr())
		m.names = append(m.names, s.Addr())
	}
}

// killable reports whether the members are ours to kill.
func (m *members) killable() bool { return m.cluster != nil }

func (m *members) kill(i int) { m.cluster.Kill(i) }

// restart brings a member back empty.
func (m *members) restart(i int) error { return m.cluster.Restart(false, i) }

func (m *members) close() error {
	if m.cluster == nil {
		return nil
	}
	return m.cluster.Close()
}
