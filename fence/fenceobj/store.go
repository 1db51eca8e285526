package fenceobj

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redquorum/redquorum/fence"
)

var (
	// ErrNotFound is what Store.Get returns for an object that is not there.
	ErrNotFound = errors.New("fenceobj: no such object")

	// ErrConflict is what Store.Put returns if the condition does not hold: nothing was written.
	ErrConflict = errors.New("fenceobj: object has another version")

	// ErrTooLarge is what Store.Put returns for an object that Get would refuse: nothing was written.
	ErrTooLarge = errors.New("fenceobj: object too large")

	// ErrNoConditions is matched by the error for a store that ignores conditions, or lets two
	// writers pass the same one. A guard over it protects nothing.
	ErrNoConditions = errors.New("fenceobj: store does not keep conditions")
)

// Store is an object store. Its methods are strongly consistent: Get returns the latest object whose
// Put has returned. They are safe for concurrent use.
type Store interface {
	// Get returns an object and its version, which is never empty. Two bodies that differ have
	// versions that differ.
	Get(ctx context.Context, key string) (body []byte, version string, err error)

	// Put writes an object, if it still has the version, in one step. An empty version means that
	// the object must not exist. Put returns an error that matches ErrConflict if the condition does
	// not hold, as S3 does with 412, and with 404 for a version of an object that is gone. It writes
	// nothing that Get would not read, and returns ErrTooLarge. After any other error the object may
	// have been written.
	Put(ctx context.Context, key string, body []byte, version string) error

	// Delete removes an object, if it is there. Probe alone calls it, on the objects that it made.
	Delete(ctx context.Context, key string) error
}

// racers is how many writers Probe lets race, in each of its rounds.
const (
	racers = 8
	rounds = 4
)

// Probe tries whether a store keeps its conditions, on objects with names that begin with prefix and
// end at random, and removes them.
//
// Errors: a *fence.StepError with StepProbe. It matches ErrNoConditions if the store is unfit. A store
// that passes may still race, more seldom than Probe can see.
func Probe(ctx context.Context, s Store, prefix string) error {
	failed := func(err error) error {
		return &fence.StepError{Step: fence.StepProbe, Resource: prefix, Err: err}
	}
	if s == nil {
		return failed(errors.New("fenceobj: nil Store"))
	}
	key := prefix + rand.Text()
	err := probe(ctx, s, key)
	if gone := s.Delete(context.WithoutCancel(ctx), key); err == nil {
		err = gone
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

func probe(ctx context.Context, s Store, key string) error {
	unfit := func(what string) error { return fmt.Errorf("%w: %s", ErrNoConditions, what) }
	put := func(body, version string) (bool, error) {
		err := s.Put(ctx, key, []byte(body), version)
		if errors.Is(err, ErrConflict) { // of the second of two, if something between has sent it twice
			there, _, err := s.Get(ctx, key)
			if errors.Is(err, ErrNotFound) {
				err = nil
			}
			return err == nil && string(there) == body, err
		}
		return err == nil, err
	}
	look := func(want string) (string, error) {
		body, version, err := s.Get(ctx, key)
		switch {
		case err != nil:
			return "", err
		case string(body) != want:
			return "", unfit(fmt.Sprintf("it has %.20q and not %.20q", body, want))
		case version == "":
			return "", unfit("an object has no version")
		}
		return version, nil
	}

	if _, _, err := s.Get(ctx, key); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("fenceobj: an object that is not there gives %w", orNothing(err))
	}
	if written, err := put("gone", "\"0123456789abcdef0123456789abcdef\""); err != nil || written {
		return orUnfit(err, unfit("it writes an object that is gone in place of one that is there"))
	}
	if written, err := put("one", ""); err != nil || !written {
		return orUnfit(err, unfit("it does not write an object that is not there"))
	}
	first, err := look("one")
	if err != nil {
		return err
	}
	if written, err := put("other", ""); err != nil || written {
		return orUnfit(err, unfit("it writes over an object that must not be there"))
	}
	if written, err := put("two", first); err != nil || !written {
		return orUnfit(err, unfit("it refuses the version that it gave"))
	}
	if _, err := look("two"); err != nil {
		return err
	}
	if written, err := put("late", first); err != nil || written {
		return orUnfit(err, unfit("it writes in place of an old version"))
	}
	body := "two"
	for round := range rounds {
		version, err := look(body)
		if err != nil {
			return err
		}
		if body, err = race(ctx, s, key, version, round); err != nil {
			return err
		}
	}
	_, err = look(body)
	return err
}

// race lets several writers pass one condition at once. Exactly one may.
func race(ctx context.Context, s Store, key, version string, round int) (winner string, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var won int
	var errs []error
	var bodies []string
	for i := range racers {
		body := fmt.Sprintf("round %d, writer %d", round, i)
		bodies = append(bodies, body)
		wg.Go(func() {
			err := s.Put(ctx, key, []byte(body), version)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won++
				winner = body
			case !errors.Is(err, ErrConflict):
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	if won == 0 && len(errs) == 0 { // the winner was told of its second writing
		there, _, err := s.Get(ctx, key)
		if errs = append(errs, err); err == nil && slices.Contains(bodies, string(there)) {
			won, winner = 1, string(there)
		}
	}
	switch err := errors.Join(errs...); {
	case err != nil:
		return "", err
	case won != 1:
		return "", fmt.Errorf("%w: %d of %d writers passed the same condition", ErrNoConditions, won, racers)
	}
	return winner, nil
}

func orNothing(err error) error {
	if err == nil {
		return fmt.Errorf("%w: an object", ErrNoConditions)
	}
	return err
}

func orUnfit(err, unfit error) error {
	if err != nil {
		return err
	}
	return unfit
}
