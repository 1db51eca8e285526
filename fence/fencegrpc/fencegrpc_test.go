package fencegrpc

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// The service has one value. Its requests are "!name=value", to write, or "?name", to read; the name is that of the lock.
type service struct {
	guard  fence.AtomicGuard
	values map[string]string // kept apart by guard, because there is one name
	failed error
	tokens []string // what the calls had
}

const method = "/test.Store/Call"

func start(t *testing.T, guard fence.AtomicGuard, options ...grpc.DialOption) (*service, *grpc.ClientConn) {
	s := &service{guard: guard, values: map[string]string{}}
	server := grpc.NewServer(grpc.UnaryInterceptor(UnaryServer(guard, func(method string, request any) (string, bool) {
		name, _, _ := cut(request.(*wrapperspb.BytesValue).Value)
		return name, name != "open"
	})))
	server.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Store", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Call",
		Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{FullMethod: method}, func(ctx context.Context, in any) (any, error) {
				return s.call(ctx, in.(*wrapperspb.BytesValue).Value)
			})
		},
	}}}, s)
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(UnaryClient()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })}, options...)
	conn := rt.Must(grpc.NewClient("passthrough:///test", options...))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return s, conn
}

func cut(request []byte) (name, value string, write bool) {
	text := string(request[1:])
	if request[0] == '?' {
		return text, "", false
	}
	name, value, _ = strings.Cut(text, "=")
	return name, value, true
}

func (s *service) call(ctx context.Context, request []byte) (*wrapperspb.BytesValue, error) {
	if s.failed != nil {
		return nil, s.failed
	}
	received, _ := metadata.FromIncomingContext(ctx)
	s.tokens = received.Get(Key)
	name, value, write := cut(request)
	if write {
		s.values[name] = value
	}
	return wrapperspb.Bytes([]byte(s.values[name])), nil
}

func ask(ctx context.Context, conn *grpc.ClientConn, request string) (string, error) {
	out := new(wrapperspb.BytesValue)
	return string(out.Value), conn.Invoke(ctx, method, wrapperspb.Bytes([]byte(request)), out)
}

func with(ctx context.Context, tokens ...string) context.Context {
	for _, token := range tokens {
		ctx = metadata.AppendToOutgoingContext(ctx, Key, token)
	}
	return ctx
}

func TestServerAnswersWhatTheTokenIsWorth(t *testing.T) {
	t.Parallel()
	guard := new(fence.Memory)
	s, conn := start(t, guard)
	ctx := t.Context()
	require.NoError(t, rt.Err(ask(with(ctx, "34"), conn, "!r=34")))
	for _, tc := range []struct {
		tokens []string
		code   codes.Code
		want   error
	}{
		{[]string{"34"}, codes.OK, nil},
		{[]string{"33"}, codes.FailedPrecondition, fence.ErrStale},
		{nil, codes.FailedPrecondition, fence.ErrNoToken},
		{[]string{"0"}, codes.FailedPrecondition, fence.ErrNoToken},
		{[]string{"-1"}, codes.InvalidArgument, ErrBadToken},
		{[]string{"35 "}, codes.InvalidArgument, ErrBadToken},
		{[]string{""}, codes.InvalidArgument, ErrBadToken},
		{[]string{"9223372036854775808"}, codes.InvalidArgument, ErrBadToken},
		{[]string{"35", "36"}, codes.InvalidArgument, ErrBadToken},
	} {
		value := "34"
		if tc.want != nil {
			value = "refused"
		}
		_, err := ask(with(ctx, tc.tokens...), conn, "!r="+value)
		assert.Equal(t, tc.code, status.Code(err), "%q", tc.tokens)
		assert.ErrorIs(t, Error(err), tc.want, "%q", tc.tokens)
		assert.Equal(t, map[string]string{"r": "34"}, s.values)
		assert.Equal(t, uint64(34), guard.Highest("r"))
	}
	require.NoError(t, rt.Err(ask(with(ctx, "9007199254740993"), conn, "?\xff\x00"))) // a read is a claim
	_, err := ask(with(ctx, "9007199254740992"), conn, "!\xff\x00=late")
	assert.Equal(t, &fence.StaleError{Resource: "\xff\x00", Token: 1 << 53, Highest: 1<<53 + 1}, Error(err))

	require.NoError(t, rt.Err(ask(ctx, conn, "!open=1")), "what is not guarded needs no token")
	assert.Panics(t, func() { UnaryServer(nil, nil) })
}

// What the handler says is no refusal, and what the guard says is not told.
func TestErrorsOfHandlerAndGuardAreToldApart(t *testing.T) {
	t.Parallel()
	s, conn := start(t, new(fence.Memory))
	s.failed = status.Error(codes.FailedPrecondition, "closed")
	_, err := ask(with(t.Context(), "5"), conn, "!r=5")
	assert.Equal(t, codes.FailedPrecondition, status.Code(err))
	assert.NoError(t, Error(err))
	assert.NoError(t, Error(nil))
	assert.NoError(t, Error(errors.New("something else")))

	s, conn = start(t, broken{})
	_, err = ask(with(t.Context(), "5"), conn, "!r=5")
	assert.Equal(t, codes.Unavailable, status.Code(err))
	assert.NotContains(t, err.Error(), "password")
	assert.NoError(t, Error(err))
	assert.Empty(t, s.values)
}

type broken struct{}

func (broken) Check(context.Context, string, uint64) error { return errors.New("password is x") }
func (b broken) Do(ctx context.Context, r string, token uint64, _ func() error) error {
	return b.Check(ctx, r, token)
}

type remote struct{ *grpc.ClientConn }

func (r remote) Check(ctx context.Context, resource string, token uint64) error {
	_, err := ask(with(ctx, strconv.FormatUint(token, 10)), r.ClientConn, "?"+resource)
	if refused := Error(err); refused != nil {
		return refused
	}
	return err
}

func TestServiceIsAGuard(t *testing.T) {
	t.Parallel()
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		s, conn := start(t, new(fence.Memory))
		s.failed = nothing
		return fencetest.Fixture{Guard: claims{remote{conn}}, Lacks: "restart data crash"}
	})
}

type claims struct{ remote }

var nothing = status.Error(codes.Aborted, "nothing")

func (c claims) Check(ctx context.Context, resource string, token uint64) error {
	if err := c.remote.Check(ctx, resource, token); status.Code(err) != codes.Aborted {
		return err
	}
	return nil
}

type calls struct {
	remote
	service *service
	guard   *fence.Memory
}

func (c calls) Get(ctx context.Context, resource string) (value string, err error) {
	for { // as the holder of the greatest token, whoever that is
		err = c.guard.Do(ctx, resource, max(1, c.guard.Highest(resource)), func() error { value = c.service.values[resource]; return nil })
		if !errors.Is(err, fence.ErrStale) {
			return value, err
		}
	}
}

func (c calls) Put(ctx context.Context, resource string, token uint64, value string, _ func()) error {
	_, err := ask(with(ctx, strconv.FormatUint(token, 10)), c.ClientConn, "!"+resource+"="+value)
	return errors.Join(Error(err), err)
}

func (c calls) Overwrite(context.Context, string, string) error { return errors.ErrUnsupported }

// Something between sends calls twice, or late. They write what they write, so no more than the first one counts.
func TestRepeatedCallsLoseNothing(t *testing.T) {
	t.Parallel()
	guard, b := new(fence.Memory), fencetest.NewBetween(t)
	s, conn := start(t, guard, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		answer, err := fencetest.Send(b, func() (*wrapperspb.BytesValue, error) {
			answer := new(wrapperspb.BytesValue)
			return answer, invoke(ctx, method, in, answer, conn, options...)
		})
		out.(*wrapperspb.BytesValue).Value = answer.Value
		return err
	}))
	f := calls{remote{conn}, s, guard}
	result := fencetest.Set(t, fencetest.Fixture{Guard: f, Storage: f}, fencetest.Guarded, 100)
	assert.Zero(t, result.Lost, "%v", result)
}

func TestClientSendsTheTokenOfTheInnermostLease(t *testing.T) {
	t.Parallel()
	locks := redlocktest.New(t, 1).Client
	s, conn := start(t, new(fence.Memory))
	require.NoError(t, locks.Mutex("r").Do(t.Context(), func(ctx context.Context, lease *redlock.Lease) error {
		require.NoError(t, rt.Err(ask(ctx, conn, "!r=1")))
		assert.Equal(t, []string{strconv.FormatUint(lease.Token(), 10)}, s.tokens)
		require.NoError(t, rt.Err(ask(with(ctx, "7"), conn, "!other=1")))
		assert.Equal(t, []string{"7"}, s.tokens)
		return nil
	}))
}
