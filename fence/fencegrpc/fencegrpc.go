// Package fencegrpc carries fencing tokens over gRPC: a client sends the token of its lease, and a
// server refuses calls of a holder that has been overtaken.
//
//	client   UnaryClient: metadata fence-token: 34, from the lease in the context of the call
//	server   UnaryServer: FAILED_PRECONDITION, reason NO_TOKEN, without a token
//	                      FAILED_PRECONDITION, reason FENCED, with a stale one, and the greatest one
//
// The code is not ABORTED, because clients repeat a call that was aborted. UnaryServer runs the
// handler inside fence.AtomicGuard.Do, so a check and the write are one step. If the data is in a
// database, take the token with Token, and enter with it in the transaction that writes.
//
// A call is a claim, also one that reads. So a holder sends its token with each call, to the server
// that has the data. Whoever may send a token can lock out all others with a great one: authenticate
// callers first. Streams have no interceptor here, because a guard would be held for as long as the
// client likes.
//
// It is a module of its own because of gRPC.
package fencegrpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
)

// Key is the metadata key that has the token, in decimal digits.
const Key = "fence-token"

// domain and the reasons are what an ErrorInfo of UnaryServer has.
const (
	domain   = "redquorum"
	fenced   = "FENCED"
	noToken  = "NO_TOKEN"
	badToken = "BAD_TOKEN"
)

// ErrBadToken is matched by the error for metadata that is no token.
var ErrBadToken = errors.New("fencegrpc: bad " + Key)

// UnaryClient sends the token of the lease whose context a call has: the innermost, as
// redlock.FromContext says. A call that has the metadata already, or no lease, is sent as it is.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		sent, _ := metadata.FromOutgoingContext(ctx)
		if lease, ok := redlock.FromContext(ctx); ok && len(sent.Get(Key)) == 0 {
			ctx = metadata.AppendToOutgoingContext(ctx, Key, strconv.FormatUint(lease.Token(), 10))
		}
		return invoke(ctx, method, request, reply, c, o...)
	}
}

// Token returns the token of a call at a server. It returns an error that matches fence.ErrNoToken if
// there is none, or ErrBadToken.
func Token(ctx context.Context) (uint64, error) {
	received, _ := metadata.FromIncomingContext(ctx)
	values := received.Get(Key)
	switch {
	case len(values) == 0:
		return 0, fmt.Errorf("fencegrpc: no %s: %w", Key, fence.ErrNoToken)
	case len(values) > 1:
		return 0, fmt.Errorf("%w: it is there %d times", ErrBadToken, len(values))
	}
	token, err := strconv.ParseUint(values[0], 10, 63) // digits alone
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %.40q", ErrBadToken, values[0])
	case token == 0:
		return 0, fmt.Errorf("fencegrpc: %s is 0: %w", Key, fence.ErrNoToken)
	}
	return token, nil
}

// Resource says which lock protects what a call is about: the name of the lock. If it returns false,
// the call is not guarded.
type Resource func(method string, request any) (resource string, guarded bool)

// UnaryServer runs handlers of calls whose token guard accepts, while guard accepts no other token of
// the resource. It answers in place of the handler with codes.FailedPrecondition, or
// codes.InvalidArgument for metadata that is no token, and Error reads that. If guard cannot tell, or
// the call's context ends while it waits, the code is codes.Unavailable, and the handler has not run.
// The guard lets go when the handler returns: its goroutines must have ended their writes by then.
//
// It panics if an argument is nil.
func UnaryServer(guard fence.AtomicGuard, resource Resource) grpc.UnaryServerInterceptor {
	if guard == nil || resource == nil {
		panic("fencegrpc: nil guard or resource")
	}
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (reply any, err error) {
		name, guarded := resource(info.FullMethod, request)
		if !guarded {
			return handler(ctx, request)
		}
		token, err := Token(ctx)
		if err != nil {
			return nil, refusal(err)
		}
		var failed error // of the handler: it is no refusal, whatever it is
		err = guard.Do(ctx, name, token, func() error {
			reply, failed = handler(ctx, request)
			return nil
		})
		if err != nil {
			return nil, refusal(err)
		}
		return reply, failed
	}
}

// refusal is the status that a client gets.
func refusal(err error) error {
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		return detailed(codes.FailedPrecondition, fenced, "stale token", map[string]string{
			"resource": base64.StdEncoding.EncodeToString([]byte(stale.Resource)), // a name may have any bytes
			"token":    strconv.FormatUint(stale.Token, 10), "highest": strconv.FormatUint(stale.Highest, 10),
		})
	case errors.Is(err, fence.ErrNoToken):
		return detailed(codes.FailedPrecondition, noToken, "send "+Key, nil)
	case errors.Is(err, ErrBadToken), errors.Is(err, fence.ErrTokenRange):
		return detailed(codes.InvalidArgument, badToken, Key+" has one decimal number from 1 to 9223372036854775807", nil)
	}
	return status.Error(codes.Unavailable, "the guard cannot tell") // without the cause: it may have secrets
}

func detailed(code codes.Code, reason, message string, about map[string]string) error {
	s, err := status.New(code, message).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: domain, Metadata: about})
	if err != nil {
		return status.Error(code, message)
	}
	return s.Err()
}

// Error returns what UnaryServer says in the error of a call: a *fence.StaleError, or an error that
// matches fence.ErrNoToken or ErrBadToken. For other errors it returns nil.
func Error(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return nil
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.Domain != domain {
			continue
		}
		switch info.Reason {
		case noToken:
			return fmt.Errorf("fencegrpc: the server wants a %s: %w", Key, fence.ErrNoToken)
		case badToken:
			return fmt.Errorf("%w: the server says so", ErrBadToken)
		case fenced:
			token, err1 := strconv.ParseUint(info.Metadata["token"], 10, 63)
			highest, err2 := strconv.ParseUint(info.Metadata["highest"], 10, 63)
			resource, err3 := base64.StdEncoding.DecodeString(info.Metadata["resource"])
			if err1 == nil && err2 == nil && err3 == nil && highest > token {
				return &fence.StaleError{Resource: string(resource), Token: token, Highest: highest}
			}
		}
	}
	return nil
}
