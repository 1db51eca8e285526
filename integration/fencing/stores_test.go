//go:build linux || darwin

package fencing

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencefile"
	"github.com/redquorum/redquorum/fence/fencegrpc"
	"github.com/redquorum/redquorum/fence/fencehttp"
	"github.com/redquorum/redquorum/fence/fenceobj"
	"github.com/redquorum/redquorum/fence/fenceredis"
	"github.com/redquorum/redquorum/fence/fences3"
	"github.com/redquorum/redquorum/fence/fencesql"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

// stores are the storages that several processes share, by kind: each opens one where the parent has put it.
var stores = map[string]func(t testing.TB, at string) fencetest.Fixture{
	"file": openFiles, "Redis": openRedis, "S3": openBucket, "bbolt": openBolt, "HTTP": openHTTP, "gRPC": openGRPC,
	"PostgreSQL": openSQL("pgx", fencesql.PostgreSQL), "MariaDB": openSQL("mysql", fencesql.MySQL), "SQLite": openSQL("sqlite", fencesql.SQLite),
}

// places make these storages, and say where they are. They end with the test.
var places = map[string]func(t testing.TB) string{
	"file": func(t testing.TB) string { return t.TempDir() },
	"Redis": func(t testing.TB) string {
		return rt.RealWith(t, 1, redistest.RealConfig{Persist: redistest.AppendAlways}).Servers[0].Addr()
	},
	"S3":   placeBucket,
	"HTTP": placeHTTP, "gRPC": placeGRPC,
	"bbolt":      func(t testing.TB) string { return filepath.Join(t.TempDir(), "data") },
	"PostgreSQL": func(t testing.TB) string { return placeSQL(t, postgres(t)) },
	"MariaDB":    func(t testing.TB) string { return placeSQL(t, mariadb(t)) },
	"SQLite":     func(t testing.TB) string { return placeSQL(t, sqlite(t)) },
}

func placeSQL(t testing.TB, d *database) string {
	d.guard(t, d.connect(t))
	return d.source
}

func openSQL(driver string, dialect fencesql.Dialect) func(t testing.TB, at string) fencetest.Fixture {
	return func(t testing.TB, at string) fencetest.Fixture {
		d := &database{dialect: dialect, open: func() (*sql.DB, error) { return sql.Open(driver, at) }}
		db := d.connect(t)
		g, err := fencesql.New(db, dialect)
		require.NoError(t, err)
		require.NoError(t, g.Verify(t.Context()))
		return fencetest.Fixture{Guard: g, Storage: rows{d, db, g}}
	}
}

// files has a file for each resource.
type files struct {
	guard *fencefile.Guard
	dir   string
}

func openFiles(t testing.TB, at string) fencetest.Fixture {
	g, err := fencefile.Open(filepath.Join(at, "guard"))
	require.NoError(t, err)
	return fencetest.Fixture{Guard: g, Storage: files{g, at}}
}

func (f files) name(resource string) string {
	return filepath.Join(f.dir, hex.EncodeToString([]byte(resource)))
}

func (f files) Get(_ context.Context, resource string) (string, error) {
	content, err := os.ReadFile(f.name(resource))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return string(content), err
}

func (f files) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	return f.guard.WriteFile(ctx, resource, token, f.name(resource), []byte(value), 0o600)
}

func (f files) Overwrite(_ context.Context, resource, value string) error {
	tmp, err := os.CreateTemp(f.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = tmp.WriteString(value)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.name(resource))
}

// strings of a Redis.
type redisRows struct {
	ask   func(ctx context.Context, words ...string) (any, error)
	guard *fenceredis.Guard
}

// openRedis has one connection: a process has one call at a time.
func openRedis(t testing.TB, at string) fencetest.Fixture {
	c, err := redistest.DialClient(t.Context(), &net.Dialer{}, at)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	g := fenceredis.New(func(ctx context.Context, script string, keys []string, args ...string) (any, error) {
		words := append([]string{"EVAL", script, strconv.Itoa(len(keys))}, keys...)
		return c.Do(ctx, append(words, args...)...)
	})
	return fencetest.Fixture{Guard: g, Storage: redisRows{c.Do, g}}
}

func (r redisRows) key(resource string) string { return slot.Sibling("data:", resource) }

func (r redisRows) Get(ctx context.Context, resource string) (string, error) {
	v, err := r.ask(ctx, "GET", r.key(resource))
	value, _ := v.(string)
	return value, err
}

func (r redisRows) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	_, err := r.guard.Run(ctx, resource, token, []string{r.key(resource)}, "SET", r.key(resource), value)
	return err
}

func (r redisRows) Overwrite(ctx context.Context, resource, value string) error {
	_, err := r.ask(ctx, "SET", r.key(resource), value)
	return err
}

// placeBucket is a server of S3 in this process.
func placeBucket(t testing.TB) string {
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	_, err := s3Client(server.URL, nil).CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("bucket")})
	require.NoError(t, err)
	return server.URL
}

func openBucket(t testing.TB, at string) fencetest.Fixture {
	store := fences3.New(s3Client(at, nil), "bucket")
	g, err := fenceobj.Open(t.Context(), store, "locks/")
	require.NoError(t, err)
	return fencetest.Fixture{Guard: g, Storage: states{g, store}}
}

// boltFile opens the file for each call, because a process that has it open keeps all others out.
type boltFile string

func openBolt(_ testing.TB, at string) fencetest.Fixture {
	return fencetest.Fixture{Guard: boltFile(at), Storage: boltFile(at)}
}

func (f boltFile) with(use func(b boltRows) error) error {
	db, err := bolt.Open(string(f), 0o600, nil)
	if err != nil {
		return err
	}
	return errors.Join(use(boltRows{Bolt{db}}), db.Close())
}

func (f boltFile) Check(ctx context.Context, resource string, token uint64) error {
	return f.with(func(b boltRows) error { return b.Check(ctx, resource, token) })
}

func (f boltFile) Get(ctx context.Context, resource string) (value string, err error) {
	err = f.with(func(b boltRows) error {
		value, err = b.Get(ctx, resource)
		return err
	})
	return value, err
}

func (f boltFile) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	return f.with(func(b boltRows) error { return b.Put(ctx, resource, token, value, entered) })
}

func (f boltFile) Overwrite(ctx context.Context, resource, value string) error {
	return f.with(func(b boltRows) error { return b.Overwrite(ctx, resource, value) })
}

// placeHTTP is a service in front of files. Its clients may also go around the guard.
func placeHTTP(t testing.TB) string {
	g, err := fencefile.Open(t.TempDir())
	require.NoError(t, err)
	f := files{g, t.TempDir()}
	resource := func(r *http.Request) string { return r.PathValue("set") }
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPut {
			err = f.Overwrite(r.Context(), resource(r), string(body))
		}
		var value string
		if err == nil {
			value, err = f.Get(r.Context(), resource(r))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, value)
	})
	mux := http.NewServeMux()
	mux.Handle("/guarded/{set}", fencehttp.Handler(g, resource, serve))
	mux.Handle("/plain/{set}", serve)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// overHTTP is a client of such a service. The token is that of the lease in the context.
type overHTTP struct {
	client *http.Client
	url    string
}

func openHTTP(_ testing.TB, at string) fencetest.Fixture {
	c := overHTTP{&http.Client{Transport: &fencehttp.Transport{}}, at}
	return fencetest.Fixture{Guard: c, Storage: c}
}

func (c overHTTP) ask(ctx context.Context, method, path, resource, value string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path+resource, bytes.NewReader([]byte(value)))
	if err != nil {
		return "", err
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := fencehttp.Error(answer); err != nil {
		return "", err
	}
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

func (c overHTTP) Check(ctx context.Context, resource string, _ uint64) error {
	_, err := c.ask(ctx, http.MethodGet, "/guarded/", resource, "")
	return err
}

func (c overHTTP) Get(ctx context.Context, resource string) (string, error) {
	return c.ask(ctx, http.MethodGet, "/plain/", resource, "")
}

func (c overHTTP) Put(ctx context.Context, resource string, _ uint64, value string, _ func()) error {
	_, err := c.ask(ctx, http.MethodPut, "/guarded/", resource, value)
	return err
}

func (c overHTTP) Overwrite(ctx context.Context, resource, value string) error {
	_, err := c.ask(ctx, http.MethodPut, "/plain/", resource, value)
	return err
}

// Methods of a service in front of files. A request is the name of the set, and what to write after a slash.
const (
	guardedCall = "/test.Sets/Guarded"
	plainCall   = "/test.Sets/Plain"
)

func placeGRPC(t testing.TB) string {
	g, err := fencefile.Open(t.TempDir())
	require.NoError(t, err)
	f := files{g, t.TempDir()}
	split := func(request any) (set, value []byte, write bool) {
		return bytes.Cut(request.(*wrapperspb.BytesValue).Value, []byte("/"))
	}
	handle := func(ctx context.Context, request any) (any, error) {
		set, value, write := split(request)
		if write {
			if err := f.Overwrite(ctx, string(set), string(value)); err != nil {
				return nil, err
			}
		}
		content, err := f.Get(ctx, string(set))
		return wrapperspb.Bytes([]byte(content)), err
	}
	method := func(name, full string) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return between(ctx, in, &grpc.UnaryServerInfo{FullMethod: full}, handle)
		}}
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(fencegrpc.UnaryServer(g, func(method string, request any) (string, bool) {
		set, _, _ := split(request)
		return string(set), method == guardedCall
	})))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Sets", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{method("Guarded", guardedCall), method("Plain", plainCall)},
	}, f)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// overGRPC is a client of such a service.
type overGRPC struct{ conn *grpc.ClientConn }

func openGRPC(t testing.TB, at string) fencetest.Fixture {
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(fencegrpc.UnaryClient()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return fencetest.Fixture{Guard: overGRPC{conn}, Storage: overGRPC{conn}}
}

func (c overGRPC) ask(ctx context.Context, method, request string) (string, error) {
	out := new(wrapperspb.BytesValue)
	err := c.conn.Invoke(ctx, method, wrapperspb.Bytes([]byte(request)), out)
	if said := fencegrpc.Error(err); said != nil {
		err = said
	}
	return string(out.Value), err
}

func (c overGRPC) Check(ctx context.Context, resource string, _ uint64) error {
	_, err := c.ask(ctx, guardedCall, resource)
	return err
}

func (c overGRPC) Get(ctx context.Context, resource string) (string, error) {
	return c.ask(ctx, plainCall, resource)
}

func (c overGRPC) Put(ctx context.Context, resource string, _ uint64, value string, _ func()) error {
	_, err := c.ask(ctx, guardedCall, resource+"/"+value)
	return err
}

func (c overGRPC) Overwrite(ctx context.Context, resource, value string) error {
	_, err := c.ask(ctx, plainCall, resource+"/"+value)
	return err
}

// Get and Put of these are what Storage wants.
var (
	_ fence.Guard       = overHTTP{}
	_ fence.Guard       = overGRPC{}
	_ fencetest.Storage = boltFile("")
)
