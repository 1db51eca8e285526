//go:build unix

package fencing

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fenceobj"
	"github.com/redquorum/redquorum/fence/fences3"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/dbtest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

var oneOfVersityGW = &shared{kind: dbtest.VersityGW}

// versity is a server of S3 that is a process, with an empty bucket.
type versity struct {
	*dbtest.Server
	bucket string
}

func startVersity(t *testing.T) *versity {
	s := &versity{oneOfVersityGW.take(t), fmt.Sprint("bucket-", databases.Add(1))}
	client := s3Client("http://versitygw", s.transport())
	require.NoError(t, rt.Err(client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &s.bucket})))
	return s
}

// transport has no connection that a crash could cut while it is idle.
func (s *versity) transport() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.Socket())
	}}
}

func (s *versity) store() *fences3.Store {
	return fences3.New(s3Client("http://versitygw", s.transport()), s.bucket)
}

func (s *versity) behind(t *testing.T, change func(r *http.Request) error) *fences3.Store {
	at := &url.URL{Scheme: "http", Host: "versitygw"}
	proxy := &httputil.ReverseProxy{
		Transport: s.transport(),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(at)
			assert.NoError(t, change(r.Out))
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return fences3.New(s3Client(server.URL, nil), s.bucket)
}

// signed signs a request anew, as a gateway does that has credentials of its own.
func signed(r *http.Request) error {
	r.Header.Del("Authorization")
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	return signer.SignHTTP(r.Context(), s3Credentials, r, r.Header.Get("X-Amz-Content-Sha256"), "s3", "us-east-1", time.Now())
}

// fixture is the guard over one bucket: its resources are new ones each time.
func (s *versity) fixture(t *testing.T) fencetest.Fixture {
	prefix := fmt.Sprintf("locks-%d/", databases.Add(1))
	var over func() (fencetest.Fixture, error)
	crash := func() (fencetest.Fixture, error) {
		if err := s.Restart(); err != nil {
			return fencetest.Fixture{}, err
		}
		return over()
	}
	over = func() (fencetest.Fixture, error) {
		store := s.store()
		g, err := fenceobj.Open(t.Context(), store, prefix)
		return fencetest.Fixture{
			Guard: g, Storage: states{g, store}, Crash: crash,
			Reopen: func() (fence.Guard, error) { f, err := crash(); return f.Guard, err },
		}, err
	}
	return rt.Must(over())(t)
}

func TestProbeRefusesAServerOfS3BehindAProxyThatDropsConditions(t *testing.T) {
	t.Parallel()
	s := startVersity(t)
	open := func(store *fences3.Store) error {
		_, err := fenceobj.Open(t.Context(), store, "locks/")
		return err
	}
	require.NoError(t, open(s.store()))
	require.NoError(t, open(s.behind(t, signed)))
	for _, header := range []string{"If-Match", "If-None-Match"} {
		dropped := 0
		err := open(s.behind(t, func(r *http.Request) error {
			if r.Header.Get(header) != "" {
				dropped++
			}
			r.Header.Del(header)
			return signed(r)
		}))
		assert.ErrorIs(t, err, fenceobj.ErrNoConditions, "without %s", header)
		assert.Positive(t, dropped)

		// The SDK signs conditions: without a signature of its own, a proxy cannot drop one.
		err = open(s.behind(t, func(r *http.Request) error { r.Header.Del(header); return nil }))
		assert.Equal(t, fence.StepProbe, rt.As[*fence.StepError](t, err).Step)
		assert.ErrorContains(t, err, "SignatureDoesNotMatch", "without %s", header)
	}
}

func TestServerOfS3AnswersAsTheStoreExpects(t *testing.T) {
	t.Parallel()
	s := startVersity(t)
	store, ctx := s.store(), t.Context()
	_, _, err := store.Get(ctx, "k")
	require.ErrorIs(t, err, fenceobj.ErrNotFound)
	require.NoError(t, store.Delete(ctx, "k"))
	require.NoError(t, store.Put(ctx, "k", []byte("one"), ""))
	require.ErrorIs(t, store.Put(ctx, "k", []byte("two"), ""), fenceobj.ErrConflict)
	body, first, err := store.Get(ctx, "k")
	require.NoError(t, err)
	require.Equal(t, "one", string(body))
	require.NoError(t, store.Put(ctx, "k", []byte("two"), first))
	require.ErrorIs(t, store.Put(ctx, "k", []byte("late"), first), fenceobj.ErrConflict)
	_, second, err := store.Get(ctx, "k")
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.NoError(t, store.Delete(ctx, "k"))
	require.ErrorIs(t, store.Put(ctx, "k", []byte("late"), second), fenceobj.ErrConflict, "it is gone")

	none := fences3.New(s3Client("http://versitygw", s.transport()), "none")
	_, _, err = none.Get(ctx, "k")
	require.Error(t, err)
	assert.NotErrorIs(t, err, fenceobj.ErrNotFound)
	wrong := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://versitygw"), UsePathStyle: true,
		HTTPClient: &http.Client{Transport: s.transport()},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "hush-hush"}, nil
		}),
	})
	_, err = fenceobj.Open(ctx, fences3.New(wrong, s.bucket), "locks/")
	require.Error(t, err)
	assert.NotErrorIs(t, err, fenceobj.ErrNoConditions)
	assert.NotContains(t, err.Error(), "hush-hush")
}
