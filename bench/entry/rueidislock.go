package entry

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func init() {
	register(Spec{
		Name: "rueidislock", Kind: Redis, Module: "github.com/redis/rueidis", Members: []int{1},
		Note:   "rueidislock, one key; renews every third of the lease, waits on client tracking",
		Shapes: []string{Uncontended, Shared, Separate, Renewed, Memory},
		Inner:  []string{"get", "del", "pexpireat", "set"},
		Open: func(_ context.Context, env Env) (Locker, error) {
			l, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   rueidis.ClientOption{InitAddress: env.Members, ForceSingleClient: true},
				KeyMajority:    1,
				KeyValidity:    env.Lease,
				ExtendInterval: env.Lease / 3,
				NoLoopTracking: true,
			})
			if err != nil {
				return nil, err
			}
			return rueidisLocker{l}, nil
		},
	})
}

type rueidisLocker struct{ l rueidislock.Locker }

func (l rueidisLocker) Close() { l.l.Close() }

func (l rueidisLocker) Acquire(ctx context.Context, name string) (Held, error) {
	// The context bounds its lock as well as the call; the lock must outlive the call.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	_, release, err := l.l.WithContext(own, name)
	if !stop() && err == nil {
		release()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		cancel(err)
		return nil, err
	}
	return rueidisHeld{release, cancel}, nil
}

type rueidisHeld struct {
	release context.CancelFunc
	cancel  context.CancelCauseFunc
}

// Release returns when the library does, which tells no error.
func (h rueidisHeld) Release(context.Context) error {
	h.release()
	h.cancel(nil)
	return nil
}
