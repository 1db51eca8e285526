package fencehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencehttp"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// startMembers starts three Redis servers inside this process, so that the example runs anywhere.
func startMembers() (urls []string, stop func()) {
	cluster := redistest.NewEmbeddedCluster(3)
	for i := range cluster.Len() {
		if err := cluster.Embedded(i).ServeTCP("127.0.0.1:0"); err != nil {
			panic(err)
		}
		urls = append(urls, "redis://"+cluster.Servers[i].Addr())
	}
	return urls, func() { _ = cluster.Close() }
}

// The server keeps invoices in memory. The client holds a lock, reads, and writes. Then the lease of
// another holder has a greater token, and the first one is refused.
func Example() {
	urls, stop := startMembers()
	defer stop()
	invoices := map[string]string{"42": "open"}
	server := httptest.NewServer(fencehttp.Handler(new(fence.Memory),
		func(r *http.Request) string { return "invoice:" + strings.TrimPrefix(r.URL.Path, "/") },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := strings.TrimPrefix(r.URL.Path, "/")
			if r.Method == http.MethodPut {
				body, _ := io.ReadAll(r.Body)
				invoices[id] = string(body)
			}
			fmt.Fprint(w, invoices[id])
		})))
	defer server.Close()

	client := &http.Client{Transport: &fencehttp.Transport{}}
	ask := func(ctx context.Context, method, body string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, method, server.URL+"/42", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		answer, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		if err := fencehttp.Error(answer); err != nil {
			return "", err
		}
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}

	ctx := context.Background()
	locks, err := redlock.Open(ctx, urls, redlock.Config{FreshMembers: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Mutex("invoice:42").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
		was, err := ask(ctx, http.MethodGet, "") // the claim
		if err != nil {
			return err
		}
		now, err := ask(ctx, http.MethodPut, was+", paid")
		fmt.Println(now)
		return err
	})
	fmt.Println(err)

	_, err = ask(ctx, http.MethodPut, "lost") // without a lease
	fmt.Println(errors.Is(err, fence.ErrNoToken))
	// Output:
	// open, paid
	// <nil>
	// true
}

func TestTransportSendsTheTokenOfTheInnermostLease(t *testing.T) {
	urls, stop := startMembers()
	defer stop()
	locks, err := redlock.Open(t.Context(), urls, redlock.Config{FreshMembers: true})
	require.NoError(t, err)
	defer locks.Close()
	var got []string
	base := tripper(func(r *http.Request) (*http.Response, error) {
		got = r.Header.Values(fencehttp.Header)
		return nil, errors.New("no network")
	})
	send := func(ctx context.Context, own string) []string {
		r, err := http.NewRequestWithContext(ctx, "PUT", "http://storage.example/", nil)
		require.NoError(t, err)
		if own != "" {
			r.Header.Set(fencehttp.Header, own)
		}
		before := len(r.Header)
		_, err = (&fencehttp.Transport{Base: base}).RoundTrip(r)
		require.ErrorContains(t, err, "no network")
		assert.Len(t, r.Header, before, "a RoundTripper leaves the request as it is")
		return got
	}
	outer, err := locks.Mutex("outer").Lock(t.Context())
	require.NoError(t, err)
	inner, err := locks.Mutex("inner").Lock(outer.Context())
	require.NoError(t, err)
	text := func(l *redlock.Lease) []string { return []string{strconv.FormatUint(l.Token(), 10)} }
	assert.Empty(t, send(t.Context(), ""))
	assert.Equal(t, text(outer), send(outer.Context(), ""))
	assert.Equal(t, text(inner), send(inner.Context(), ""))
	assert.Equal(t, []string{"7"}, send(inner.Context(), "7"))
	require.NoError(t, inner.Unlock(t.Context()))
	require.NoError(t, outer.Unlock(t.Context()))
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
