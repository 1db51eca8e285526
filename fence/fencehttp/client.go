package fencehttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
)

// Transport is an http.RoundTripper that sends the token of a lease. It takes the lease whose
// context the request has: the innermost, as redlock.FromContext says. A request that has the header
// already, or no lease, is sent as it is.
//
// The request ends with the lease, because it has its context. A server that got it may still do
// what it asks: that is what the token is for.
type Transport struct {
	Base http.RoundTripper // nil for http.DefaultTransport
}

// RoundTrip sends the request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if lease, ok := redlock.FromContext(r.Context()); ok && r.Header.Get(Header) == "" {
		r = r.Clone(r.Context())
		r.Header.Set(Header, strconv.FormatUint(lease.Token(), 10))
	}
	return base.RoundTrip(r)
}

// ErrUnavailable is matched by the error for an answer of Handler that says that its guard could not
// tell. Nothing was written.
var ErrUnavailable = errors.New("fencehttp: the guard cannot tell")

// Error returns what Handler says in an answer: a *fence.StaleError, or an error that matches
// fence.ErrNoToken, ErrBadToken or ErrUnavailable. For other answers it returns nil. It reads up to
// 4 KiB of the body of an answer that is a problem of Handler, and leaves the closing to the caller.
func Error(answer *http.Response) error {
	kind, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil || kind != problemType {
		return nil
	}
	switch answer.StatusCode {
	case http.StatusPreconditionRequired:
		return fmt.Errorf("fencehttp: the server wants a %s: %w", Header, fence.ErrNoToken)
	case http.StatusBadRequest, http.StatusPreconditionFailed, http.StatusServiceUnavailable:
	default:
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	var p problem
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Status != answer.StatusCode {
		return nil // somebody else's
	}
	switch {
	case p.Status == http.StatusBadRequest && p.Title == "bad token":
		return fmt.Errorf("%w: %.200s", ErrBadToken, p.Detail)
	case p.Status == http.StatusServiceUnavailable && p.Title == "the guard cannot tell":
		return ErrUnavailable
	case p.Status == http.StatusPreconditionFailed:
		token, err1 := strconv.ParseUint(p.Token, 10, 63)
		highest, err2 := strconv.ParseUint(p.Highest, 10, 63)
		if err1 == nil && err2 == nil && highest > token {
			return &fence.StaleError{Resource: string(p.Resource), Token: token, Highest: highest}
		}
	}
	return nil
}
