package fencehttp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/redquorum/redquorum/fence"
)

// Header has the token, in decimal digits.
const Header = "Fence-Token"

// MaxBody is for how many bytes of a request's body Handler waits, unless Options says otherwise:
// 1 MiB.
const MaxBody = 1 << 20

// ErrBadToken is matched by the error for a header that is no token: not decimal digits, more than
// one header, or a number above fence.MaxToken.
var ErrBadToken = errors.New("fencehttp: bad " + Header)

// Token returns the token of a request. It returns an error that matches fence.ErrNoToken if there
// is none, or ErrBadToken.
func Token(r *http.Request) (uint64, error) {
	values := r.Header.Values(Header)
	switch {
	case len(values) == 0:
		return 0, fmt.Errorf("fencehttp: no %s: %w", Header, fence.ErrNoToken)
	case len(values) > 1:
		return 0, fmt.Errorf("%w: it is there %d times", ErrBadToken, len(values))
	}
	token, err := strconv.ParseUint(values[0], 10, 63) // digits alone
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %.40q", ErrBadToken, values[0])
	case token == 0:
		return 0, fmt.Errorf("fencehttp: %s is 0: %w", Header, fence.ErrNoToken)
	}
	return token, nil
}

// Option is an option of Handler.
type Option func(*handler)

// Body lets Handler wait for bodies of up to n bytes in place of MaxBody. A longer one gets 413.
func Body(n int64) Option { return func(h *handler) { h.body = n } }

// Handler runs next for requests whose token guard accepts, while guard accepts no other token of
// the resource. resource says which lock protects what a request is about, for example from the
// path. Its result must be the name of the lock.
//
// Handler answers in place of next, with an application/problem+json (RFC 9457) that Error reads:
//
//   - 428 without a token, or with 0 (RFC 6585).
//   - 400 with a header that is no token.
//   - 412 with a stale token: the members token and highest are decimal strings.
//   - 413 if the body is longer than Body.
//   - 503 if guard cannot tell, or the request's context ends while it waits.
//
// Handler reads the whole body before it asks the guard, and sends the response when the guard has
// let go. So a slow client keeps nobody out. It holds both in memory. next may not stream: its
// http.ResponseWriter is no http.Flusher and no http.Hijacker.
//
// The guard lets go when next returns. So next must have ended its writes by then, and those of all
// goroutines that it started. An http.TimeoutHandler belongs around Handler. Inside, it returns while
// the handler below it goes on, and a later holder is let in meanwhile.
//
// Handler panics if an argument is nil.
func Handler(guard fence.AtomicGuard, resource func(*http.Request) string, next http.Handler, options ...Option) http.Handler {
	if guard == nil || resource == nil || next == nil {
		panic("fencehttp: nil guard, resource or next")
	}
	h := &handler{guard: guard, resource: resource, next: next, body: MaxBody}
	for _, o := range options {
		o(h)
	}
	return h
}

type handler struct {
	guard    fence.AtomicGuard
	resource func(*http.Request) string
	next     http.Handler
	body     int64
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := Token(r)
	if err != nil {
		refuse(w, err)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.body))
	if err != nil {
		refuse(w, err)
		return
	}
	r = r.WithContext(r.Context()) // a copy, as the request is the server's
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &response{header: w.Header().Clone()} // with what was set in front of the guard
	err = h.guard.Do(r.Context(), h.resource(r), token, func() error {
		h.next.ServeHTTP(answer, r)
		return nil
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer.send(w)
}

// problem is what refuse sends. Tokens are strings, because many readers of JSON have doubles only.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Resource []byte `json:"resource,omitempty"` // base64, because a name may have any bytes
	Token    string `json:"token,omitempty"`
	Highest  string `json:"highest,omitempty"`
}

func refuse(w http.ResponseWriter, err error) {
	p := problem{Status: http.StatusServiceUnavailable, Title: "the guard cannot tell"} // without the cause: it may have secrets
	var stale *fence.StaleError
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &stale):
		p = problem{
			Status: http.StatusPreconditionFailed, Title: "stale token", Resource: []byte(stale.Resource),
			Token: strconv.FormatUint(stale.Token, 10), Highest: strconv.FormatUint(stale.Highest, 10),
		}
	case errors.Is(err, fence.ErrNoToken):
		p = problem{Status: http.StatusPreconditionRequired, Title: "no token", Detail: "send " + Header}
	case errors.Is(err, ErrBadToken), errors.Is(err, fence.ErrTokenRange):
		p = problem{Status: http.StatusBadRequest, Title: "bad token", Detail: Header + " has one decimal number from 1 to 9223372036854775807"}
	case errors.As(err, &long):
		p = problem{Status: http.StatusRequestEntityTooLarge, Title: "body too long", Detail: fmt.Sprintf("at most %d bytes", long.Limit)}
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers can be written
	}
	w.Header().Set("Content-Type", problemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(text) // a client that has gone needs no answer
}

const problemType = "application/problem+json"

// response keeps what the handler writes until the guard has let go.
type response struct {
	header, sent http.Header
	status       int
	body         bytes.Buffer
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(status int) {
	if r.status != 0 || status < 200 { // 1xx goes to nobody
		return
	}
	r.status, r.sent = status, maps.Clone(r.header)
}

func (r *response) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

func (r *response) send(w http.ResponseWriter) {
	r.WriteHeader(http.StatusOK)
	clear(w.Header())
	maps.Copy(w.Header(), r.sent)
	w.WriteHeader(r.status)
	_, _ = w.Write(r.body.Bytes()) // a client that has gone needs no answer
}
