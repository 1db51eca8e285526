//go:build unix

package fencing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fenceobj"
	"github.com/redquorum/redquorum/fence/fences3"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

var s3Credentials = aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}

// s3Client is a client of the server at an address, by a transport or by the usual one.
func s3Client(at string, by http.RoundTripper) *s3.Client {
	return s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: &at, UsePathStyle: true, HTTPClient: &http.Client{Transport: by},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return s3Credentials, nil }),
	})
}

// fakeS3 is a server of S3 in this process, which keeps conditions.
func fakeS3(t *testing.T, between func(http.Handler) http.Handler) *fences3.Store {
	server := httptest.NewServer(between(gofakes3.New(s3mem.New()).Server()))
	t.Cleanup(server.Close)
	client := s3Client(server.URL, nil)
	require.NoError(t, rt.Err(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")})))
	return fences3.New(client, "bucket")
}

func asIs(h http.Handler) http.Handler { return h }

// manifest is what an object of fenceobj has.
type manifest struct {
	Resource []byte `json:"resource"`
	Token    string `json:"token"`
	Nonce    string `json:"nonce"`
	State    []byte `json:"state"`
}

func stateOf(body []byte) string {
	var m manifest
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return string(m.State)
}

func bodyOf(resource, state string) []byte {
	body, err := json.Marshal(manifest{[]byte(resource), "1", "overwritten " + state, []byte(state)})
	if err != nil {
		panic(err)
	}
	return body
}

type states struct {
	*fenceobj.Guard
	store *fences3.Store
}

// Get reads the state as the service of an operator would: it claims nothing.
func (s states) Get(ctx context.Context, resource string) (string, error) {
	body, _, err := s.store.Get(ctx, s.Key(resource))
	if errors.Is(err, fenceobj.ErrNotFound) {
		return "", nil
	}
	return stateOf(body), err
}

func (s states) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return s.Update(ctx, resource, token, func([]byte) ([]byte, error) {
		if entered != nil {
			entered()
			entered = nil
		}
		return []byte(value), nil
	})
}

// Overwrite writes what is there with another state, whatever has been written in between.
func (s states) Overwrite(ctx context.Context, resource, value string) error {
	for {
		_, version, err := s.store.Get(ctx, s.Key(resource))
		if err != nil && !errors.Is(err, fenceobj.ErrNotFound) {
			return err
		}
		if err = s.store.Put(ctx, s.Key(resource), bodyOf(resource, value), version); !errors.Is(err, fenceobj.ErrConflict) {
			return err
		}
	}
}

func bucket(t *testing.T) fencetest.Fixture { return bucketBehind(t, asIs) }

func bucketBehind(t *testing.T, between func(http.Handler) http.Handler) fencetest.Fixture {
	store := fakeS3(t, between)
	open := func() (*fenceobj.Guard, error) { return fenceobj.Open(t.Context(), store, "locks/") }
	g := rt.Must(open())(t)
	return fencetest.Fixture{
		Guard: g, Storage: states{g, store},
		Reopen: func() (fence.Guard, error) { return open() },
	}
}

func TestBucketIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, bucket)
}

// A proxy that sends requests twice, or late, costs no addition: a write that it tells to be refused may have happened.
func TestBucketBehindAProxyThatRepeatsLosesNothing(t *testing.T) {
	t.Parallel()
	f := bucketBehind(t, func(h http.Handler) http.Handler {
		repeats := fencetest.NewBetween(t).Handler(h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/bucket" { // made once
				h.ServeHTTP(w, r)
				return
			}
			repeats.ServeHTTP(w, r)
		})
	})
	result := fencetest.Set(t, f, fencetest.Guarded, 100)
	assert.Zero(t, result.Lost, "%v", result)
}

func TestProbeRefusesABucketBehindAProxyThatDropsConditions(t *testing.T) {
	t.Parallel()
	for _, header := range []string{"If-Match", "If-None-Match"} {
		store := fakeS3(t, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del(header)
				h.ServeHTTP(w, r)
			})
		})
		_, err := fenceobj.Open(t.Context(), store, "locks/")
		assert.ErrorIs(t, err, fenceobj.ErrNoConditions, "without %s", header)
	}
}

// The answer of a write that has happened is lost. The SDK would repeat the request, and be told that its condition does
// not hold.
func TestLostAnswerOfABucketIsNoConflict(t *testing.T) {
	t.Parallel()
	var lose atomic.Bool
	store := fakeS3(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && lose.CompareAndSwap(true, false) {
				h.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	ctx := t.Context()
	lose.Store(true)
	err := store.Put(ctx, "k", []byte("one"), "")
	require.Error(t, err)
	assert.NotErrorIs(t, err, fenceobj.ErrConflict, "it was written")
	body, version, err := store.Get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, "one", string(body))
	assert.ErrorIs(t, store.Put(ctx, "k", []byte("two"), ""), fenceobj.ErrConflict)
	require.NoError(t, store.Put(ctx, "k", []byte("two"), version))
	assert.ErrorIs(t, store.Put(ctx, "k", []byte("late"), version), fenceobj.ErrConflict)
	assert.ErrorIs(t, store.Put(ctx, "gone", []byte("late"), version), fenceobj.ErrConflict)

	g := rt.Must(fenceobj.Open(ctx, store, "locks/"))(t)
	require.NoError(t, g.Check(ctx, "r", 5))
	calls := 0
	lose.Store(true)
	require.NoError(t, g.Update(ctx, "r", 5, func(state []byte) ([]byte, error) { calls++; return append(state, 'x'), nil }))
	assert.Equal(t, "x", string(rt.Must(g.Claim(ctx, "r", 5))(t)), "one addition, and not two")
	assert.Equal(t, 1, calls)
}

func TestMissingBucketIsAnError(t *testing.T) {
	t.Parallel()
	dead := httptest.NewServer(nil)
	at := rt.Must(url.Parse(dead.URL))(t)
	dead.Close()
	for _, h := range []http.Handler{gofakes3.New(s3mem.New()).Server(), httputil.NewSingleHostReverseProxy(at)} {
		server := httptest.NewServer(h)
		defer server.Close()
		client := s3.New(s3.Options{
			Region: "us-east-1", BaseEndpoint: &server.URL, UsePathStyle: true, RetryMaxAttempts: 1,
			Credentials: aws.AnonymousCredentials{},
		})
		_, _, err := fences3.New(client, "none").Get(t.Context(), "k")
		require.Error(t, err)
		assert.NotErrorIs(t, err, fenceobj.ErrNotFound)
		_, err = fenceobj.Open(t.Context(), fences3.New(client, "none"), "locks/")
		require.Error(t, err)
		assert.NotErrorIs(t, err, fenceobj.ErrNotFound)
		assert.NotErrorIs(t, err, fenceobj.ErrNoConditions)
	}
	assert.Panics(t, func() { fences3.New(nil, "b") })
}

// What Get would refuse to read is not written: the manifest could never be read again.
func TestBucketTakesNoObjectThatItWouldNotGive(t *testing.T) {
	t.Parallel()
	store := fakeS3(t, asIs)
	ctx := t.Context()
	require.NoError(t, store.Put(ctx, "k", []byte("one"), ""))
	_, version, err := store.Get(ctx, "k")
	require.NoError(t, err)
	for v, key := range map[string]string{version: "k", "": "new"} {
		err := store.Put(ctx, key, make([]byte, fences3.MaxObject+1), v)
		assert.ErrorIs(t, err, fenceobj.ErrTooLarge)
		assert.NotErrorIs(t, err, fenceobj.ErrConflict)
	}
	body, _, err := store.Get(ctx, "k")
	require.NoError(t, err)
	assert.Equal(t, "one", string(body))
}

// Two holders add lines to a state in a bucket, on a server of S3 in this process. The first one was
// overtaken while it slept, and its write is refused. A program has the tokens from its leases.
func Example_s3() {
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	defer server.Close()
	client := s3Client(server.URL, nil)
	ctx := context.Background()
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String("data")}); err != nil {
		fmt.Println(err)
		return
	}
	guard, err := fenceobj.Open(ctx, fences3.New(client, "data"), "locks/") // probes the conditions of the store
	if err != nil {
		fmt.Println(err)
		return
	}
	add := func(token uint64, line string) error {
		return guard.Update(ctx, "report", token, func(state []byte) ([]byte, error) {
			return append(state, line...), nil
		})
	}
	fmt.Println("holder 33 writes:", add(33, "one;"))
	fmt.Println("holder 34 writes:", add(34, "two;"))
	fmt.Println("holder 33 wakes up, and is refused:", errors.Is(add(33, "late;"), fence.ErrStale))
	// Output:
	// holder 33 writes: <nil>
	// holder 34 writes: <nil>
	// holder 33 wakes up, and is refused: true
}
