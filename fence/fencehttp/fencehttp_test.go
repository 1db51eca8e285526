package fencehttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// shelf is a service: it has a value for each resource, which is the path.
type shelf struct {
	guard  *fence.Memory
	mu     *sync.Mutex
	values *map[string]string // guarded by mu
}

func (s shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Path
	switch r.Method {
	case http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		(*s.values)[name] = string(body)
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Content-Type", "text/plain")
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = io.WriteString(w, (*s.values)[name])
	}
}

func byPath(r *http.Request) string { return r.URL.Path }

func newShelf() shelf { return shelf{new(fence.Memory), new(sync.Mutex), &map[string]string{}} }

func (s shelf) handler() http.Handler { return Handler(s.guard, byPath, s) }

// ask sends one request as a client with that token would; token "" sends none.
func ask(h http.Handler, method, path, token, body string) *http.Response {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set(Header, token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestServerAnswersWhatTheTokenIsWorth(t *testing.T) {
	t.Parallel()
	s := newShelf()
	h := s.handler()
	assert.Equal(t, http.StatusNoContent, ask(h, "PUT", "/r", "34", "by 34").StatusCode)
	for _, tc := range []struct {
		token  string
		status int
		want   error
	}{
		{"34", http.StatusNoContent, nil},
		{"33", http.StatusPreconditionFailed, fence.ErrStale},
		{"1", http.StatusPreconditionFailed, fence.ErrStale},
		{"", http.StatusPreconditionRequired, fence.ErrNoToken},
		{"0", http.StatusPreconditionRequired, fence.ErrNoToken},
		{"000", http.StatusPreconditionRequired, fence.ErrNoToken},
		{"-1", http.StatusBadRequest, ErrBadToken},
		{"+35", http.StatusBadRequest, ErrBadToken},
		{"35.0", http.StatusBadRequest, ErrBadToken},
		{"0x23", http.StatusBadRequest, ErrBadToken},
		{"3_5", http.StatusBadRequest, ErrBadToken},
		{" ", http.StatusBadRequest, ErrBadToken},
		{"35, 36", http.StatusBadRequest, ErrBadToken},
		{"9223372036854775808", http.StatusBadRequest, ErrBadToken},
		{"99999999999999999999999", http.StatusBadRequest, ErrBadToken},
	} {
		answer := ask(h, "PUT", "/r", tc.token, "by 34")
		assert.Equal(t, tc.status, answer.StatusCode, "%q", tc.token)
		err := Error(answer)
		if tc.want == nil {
			assert.NoError(t, err)
			continue
		}
		assert.ErrorIs(t, err, tc.want, "%q", tc.token)
		assert.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
		assert.Equal(t, map[string]string{"/r": "by 34"}, *s.values, "%q", tc.token)
		assert.Equal(t, uint64(34), s.guard.Highest("/r"))
	}

	r := httptest.NewRequest("PUT", "/r", nil)
	r.Header[Header] = []string{"35", "36"}
	assert.ErrorIs(t, rt.Err(Token(r)), ErrBadToken)
	assert.Equal(t, http.StatusOK, ask(h, "GET", "/r", "9223372036854775807", "").StatusCode)
	assert.ErrorIs(t, Error(ask(h, "PUT", "/r", "9223372036854775806", "late")), fence.ErrStale, "a read is a claim")
}

// The client has the number, every digit of it, and the name, whatever bytes it has.
func TestStaleErrorTravels(t *testing.T) {
	t.Parallel()
	s := newShelf()
	name := "\x00\xff\xe4 name"
	require.NoError(t, s.guard.Check(t.Context(), name, 1<<53+1))
	h := Handler(s.guard, func(*http.Request) string { return name }, s)
	var stale *fence.StaleError
	require.ErrorAs(t, Error(ask(h, "PUT", "/", "9007199254740992", "")), &stale)
	assert.Equal(t, fence.StaleError{Resource: name, Token: 1 << 53, Highest: 1<<53 + 1}, *stale)
}

// An answer that another server gives in between is none of the guard.
func TestOtherAnswersAreNotRefusals(t *testing.T) {
	t.Parallel()
	for status, text := range map[int]string{
		200: "", 404: "", 412: "", 503: "busy", 400: "{}",
		411: `{"title":"stale token","status":412,"token":"1","highest":"2"}`,
	} {
		w := httptest.NewRecorder()
		w.WriteHeader(status)
		_, _ = w.WriteString(text)
		assert.NoError(t, Error(w.Result()))
	}
	for status, text := range map[int]string{
		412: `{"title":"stale token","status":412,"token":"2","highest":"2"}`, 503: `{"title":"busy","status":503}`,
		400: `{"title":"bad token","status":422}`, 200: "",
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", problemType)
		w.WriteHeader(status)
		_, _ = w.WriteString(text)
		assert.NoError(t, Error(w.Result()), "%d", status)
	}
}

type guardFunc func(ctx context.Context, write func() error) error

func (g guardFunc) Check(ctx context.Context, _ string, _ uint64) error {
	return g(ctx, func() error { return nil })
}

func (g guardFunc) Do(ctx context.Context, _ string, _ uint64, write func() error) error {
	return g(ctx, write)
}

func TestGuardThatCannotTellIs503WithoutItsCause(t *testing.T) {
	t.Parallel()
	ran := false
	h := Handler(guardFunc(func(context.Context, func() error) error { return errors.New("password is x") }), byPath,
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true }))
	answer := ask(h, "PUT", "/r", "5", "")
	text := rt.Must(io.ReadAll(answer.Body))(t)
	assert.NotContains(t, string(text), "password")
	assert.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
	answer.Body = io.NopCloser(strings.NewReader(string(text)))
	assert.ErrorIs(t, Error(answer), ErrUnavailable)
	assert.False(t, ran)
}

func TestBodyThatIsTooLongIsRefusedBeforeTheGuardIsAsked(t *testing.T) {
	t.Parallel()
	s := newShelf()
	h := Handler(s.guard, byPath, s, Body(4))
	assert.Equal(t, http.StatusRequestEntityTooLarge, ask(h, "PUT", "/r", "5", "12345").StatusCode)
	assert.Zero(t, s.guard.Highest("/r"))
	assert.Equal(t, http.StatusNoContent, ask(h, "PUT", "/r", "5", "1234").StatusCode)
	assert.Equal(t, map[string]string{"/r": "1234"}, *s.values)
}

// A client that sends slowly keeps nobody from the resource: the guard is asked when the body is there.
func TestSlowBodyHoldsNoGuard(t *testing.T) {
	t.Parallel()
	s := newShelf()
	h := s.handler()
	in, out := io.Pipe()
	reads := make(chan struct{})
	slow := httptest.NewRequest("PUT", "/r", body{in, reads})
	slow.Header.Set(Header, "5")
	w := httptest.NewRecorder()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.ServeHTTP(w, slow)
	}()
	<-reads // it waits for the body
	assert.Equal(t, http.StatusNoContent, ask(h, "PUT", "/r", "6", "six").StatusCode)
	require.NoError(t, rt.Err(out.Write([]byte("five"))))
	require.NoError(t, out.Close())
	<-ended
	assert.Equal(t, http.StatusPreconditionFailed, w.Code)
	assert.Equal(t, map[string]string{"/r": "six"}, *s.values)
}

type body struct {
	io.Reader
	reads chan struct{}
}

func (b body) Read(p []byte) (int, error) {
	select {
	case <-b.reads:
	default:
		close(b.reads)
	}
	return b.Reader.Read(p)
}

// What the handler answers arrives as it is, when the guard has let go.
func TestAnswerIsSentWhenTheGuardHasLetGo(t *testing.T) {
	t.Parallel()
	inside := false
	guard := guardFunc(func(_ context.Context, write func() error) error {
		inside = true
		defer func() { inside = false }()
		return write()
	})
	h := Handler(guard, byPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Before", "1")
		w.Header().Add("Set-Cookie", "theirs=2")
		w.Header().Del("X-Outer")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-After", "1")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "tea")
	}))
	w := &watched{ResponseWriter: httptest.NewRecorder(), inside: &inside}
	r := httptest.NewRequest("POST", "/r", nil)
	r.Header.Set(Header, "5")
	w.Header().Set("Set-Cookie", "ours=1") // by what is in front of the guard
	w.Header().Set("Vary", "Cookie")
	w.Header().Set("X-Outer", "1")
	h.ServeHTTP(w, r)
	answer := w.ResponseWriter.(*httptest.ResponseRecorder)
	assert.Equal(t, http.StatusTeapot, answer.Code)
	assert.Equal(t, "tea", answer.Body.String())
	assert.Equal(t, "1", answer.Header().Get("X-Before"))
	assert.Equal(t, []string{"ours=1", "theirs=2"}, answer.Header()["Set-Cookie"])
	assert.Equal(t, "Cookie", answer.Header().Get("Vary"))
	assert.Empty(t, answer.Header().Get("X-Outer"))
	assert.Empty(t, answer.Header().Get("X-After"))
	assert.False(t, w.early)

	for _, f := range []func(){
		func() { Handler(nil, byPath, h) }, func() { Handler(guard, nil, h) }, func() { Handler(guard, byPath, nil) },
	} {
		assert.Panics(t, f)
	}
}

type watched struct {
	http.ResponseWriter
	inside *bool
	early  bool
}

func (w *watched) Write(b []byte) (int, error) {
	w.early = w.early || *w.inside
	return w.ResponseWriter.Write(b)
}

func (w *watched) WriteHeader(status int) {
	w.early = w.early || *w.inside
	w.ResponseWriter.WriteHeader(status)
}

// A panic of the handler is the server's, and the resource is free again.
func TestPanicOfTheHandlerFreesTheResource(t *testing.T) {
	t.Parallel()
	s := newShelf()
	h := Handler(s.guard, byPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	assert.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(h, "PUT", "/r", "5", "") })
	assert.Equal(t, http.StatusNoContent, ask(s.handler(), "PUT", "/r", "6", "six").StatusCode)
}

type remote struct {
	*httptest.Server
	open *httptest.Server // without a guard
}

func newRemote(t *testing.T) remote {
	return newRemoteBehind(t, func(h http.Handler) http.Handler { return h })
}

func newRemoteBehind(t *testing.T, between func(http.Handler) http.Handler) remote {
	s := newShelf()
	r := remote{httptest.NewServer(between(s.handler())), httptest.NewServer(s)}
	t.Cleanup(r.Server.Close)
	t.Cleanup(r.open.Close)
	return r
}

func (s remote) Check(ctx context.Context, resource string, token uint64) error {
	_, err := s.do(ctx, s.URL, http.MethodGet, resource, token, "")
	return err
}

func (s remote) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	_, err := s.do(ctx, s.URL, http.MethodPut, resource, token, value)
	return err
}

func (s remote) Get(ctx context.Context, resource string) (string, error) {
	return s.do(ctx, s.open.URL, http.MethodGet, resource, 0, "")
}

func (s remote) Overwrite(ctx context.Context, resource, value string) error {
	_, err := s.do(ctx, s.open.URL, http.MethodPut, resource, 0, value)
	return err
}

func (s remote) do(ctx context.Context, url, method, resource string, token uint64, value string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(value))
	if err != nil {
		return "", err
	}
	r.URL.Path = "/" + resource
	r.Header.Set(Header, fmt.Sprint(token))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if err := Error(answer); err != nil {
		var stale *fence.StaleError
		if errors.As(err, &stale) {
			stale.Resource = strings.TrimPrefix(stale.Resource, "/")
		}
		return "", err
	}
	if answer.StatusCode >= 300 {
		return "", errors.New(answer.Status)
	}
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestServiceIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		s := newRemote(t)
		return fencetest.Fixture{Guard: s, Storage: s, Lacks: "restart endings crash"}
	})
}

func TestGuardedServiceLosesNothing(t *testing.T) {
	t.Parallel()
	fencetest.RunSet(t, func(t *testing.T) fencetest.Fixture {
		s := newRemote(t)
		return fencetest.Fixture{Guard: s, Storage: s}
	}, 100)
}

// Something between sends requests twice, or late. They write what they write, so no more than the first one counts.
func TestRepeatedRequestsLoseNothing(t *testing.T) {
	t.Parallel()
	s := newRemoteBehind(t, fencetest.NewBetween(t).Handler)
	result := fencetest.Set(t, fencetest.Fixture{Guard: s, Storage: s}, fencetest.Guarded, 100)
	assert.Zero(t, result.Lost, "%v", result)
}

func TestRequestOfAnEndedContextIsNotRun(t *testing.T) {
	t.Parallel()
	s := newShelf()
	h := s.handler()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	require.NoError(t, s.guard.Do(ctx, "/r", 5, func() error {
		r := httptest.NewRequest("PUT", "/r", strings.NewReader("six")).WithContext(ctx)
		r.Header.Set(Header, "6")
		cancel()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusServiceUnavailable, w.Code)
		return nil
	}))
	assert.Empty(t, *s.values)
}
