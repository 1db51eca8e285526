package fenceobj

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/internal/claims"
)

// ErrDamaged is matched by the error for an object that is no manifest of the resource. The guard
// accepts nothing until an operator has put it right.
var ErrDamaged = errors.New("fenceobj: damaged manifest")

// ErrNotClaimed is matched by the error of Commit for a token that nobody has claimed.
var ErrNotClaimed = errors.New("fenceobj: token not claimed")

// Guard is a fence.Guard over manifests in a store. It is safe for concurrent use.
type Guard struct {
	store  Store
	prefix string

	mu     sync.Mutex
	doubts map[string]map[string]bool // guarded by mu: versions of a resource that a write without an answer may still replace
}

var _ fence.Guard = (*Guard)(nil)

// Open probes a store, and returns the guard whose manifests have keys that begin with prefix. See
// Probe for its errors.
func Open(ctx context.Context, s Store, prefix string) (*Guard, error) {
	if err := Probe(ctx, s, prefix+"probe-"); err != nil {
		return nil, err
	}
	return &Guard{store: s, prefix: prefix, doubts: map[string]map[string]bool{}}, nil
}

// manifest is what an object has. Numbers are strings, because many readers of JSON have doubles only.
type manifest struct {
	Resource []byte `json:"resource"` // base64, because a name may have any bytes
	Token    string `json:"token"`
	Nonce    string `json:"nonce"` // of one attempt to write: it tells the writer whether it was its own
	State    []byte `json:"state"`

	// Before has the nonces of the writes before this one, the latest first: "" is that of no manifest. It tells what
	// became of a write if others have written since.
	Before []string `json:"before,omitempty"`
}

// mostBefore is how many nonces a manifest has.
const mostBefore = 32

// attempt is a write that was sent, and of which nothing is known yet. The answer of the store proves nothing if it is
// a refusal: whatever lies between may have sent the write twice, and told of the second one.
type attempt struct {
	nonce string
	on    version // the condition
}

// fate is what became of an attempt.
type fate int

const (
	doubtful fate = iota // it may still happen, or others have written more than a manifest tells
	written              // and maybe others have written since
	never                // not now, and not later
)

// fate tells it by a manifest that was read after the attempt.
func (v version) fate(a attempt) fate {
	if v.Nonce == a.nonce {
		return written
	}
	if v.at == a.on.at {
		return doubtful
	}
	for _, nonce := range append([]string{v.Nonce}, v.Before...) {
		switch nonce {
		case a.nonce:
			return written
		case a.on.Nonce:
			return never
		}
	}
	return doubtful
}

// version is a manifest that was read.
type version struct {
	manifest
	token uint64 // 0 if there is no manifest
	at    string // "" if there is none
}

// maxPlain is how many bytes a name has at most that is in its key as it is. S3 has keys of up to 1,024
// bytes, and stores over files have parts of 255.
const maxPlain = 100

// Key returns the key of a resource's manifest: prefix, "manifest-", and the name in hexadecimal digits.
// For a name of more than 100 bytes it is "manifest-sha256-" and the SHA-256 of the name.
func (g *Guard) Key(resource string) string {
	if len(resource) > maxPlain {
		return fmt.Sprintf("%smanifest-sha256-%x", g.prefix, sha256.Sum256([]byte(resource)))
	}
	return fmt.Sprintf("%smanifest-%x", g.prefix, resource)
}

// DataName returns a name that nobody gets again, for an object with data of the holder. It begins
// with prefix and the token.
func (g *Guard) DataName(token uint64) string {
	return fmt.Sprintf("%sdata-%020d-%s", g.prefix, token, rand.Text())
}

// Check is the claim. It is Claim for a caller that does not want the state.
func (g *Guard) Check(ctx context.Context, resource string, token uint64) error {
	_, err := g.Claim(ctx, resource, token)
	return err
}

// Claim raises the token, and returns the state that belongs to it: nil if there is none yet. No write
// with a smaller token happens after that, and none that this Guard has left in doubt. Claim repeats
// what loses against other writers, until ctx ends.
//
// Errors: those of fence.Guard, or a *fence.StepError with StepClaim.
func (g *Guard) Claim(ctx context.Context, resource string, token uint64) (state []byte, err error) {
	return g.swap(ctx, fence.StepClaim, resource, token, func(v version) ([]byte, bool) { return v.State, v.token < token })
}

// Commit writes the state of a holder that has claimed. Nothing is merged: if several writers share a
// token, they take turns, or call Update.
//
// Errors: those of fence.Guard; one that matches ErrNotClaimed, because the state may come from before
// the claim; a *fence.StepError with StepEnter, and nothing was written; or one with StepCommit, after
// which the state may have been written. Then call Claim and look.
func (g *Guard) Commit(ctx context.Context, resource string, token uint64, state []byte) error {
	return g.update(ctx, resource, token, func(v version) ([]byte, error) {
		if v.token < token {
			return nil, ErrNotClaimed
		}
		return state, nil
	})
}

// Update computes a state from the one that is there, and writes it with the token, if nobody has
// written in between. Otherwise it calls f again, with the new state. So it needs no claim, unless f
// knows more than it is given.
//
// Errors: those of fence.Guard; a *fence.StepError with StepEnter, or with StepWrite, whose Err is that
// of f, and nothing was written; or one with StepCommit, as of Commit. If f fails when it is called
// again, after a write without an answer, the step is StepCommit, and Err has both errors.
func (g *Guard) Update(ctx context.Context, resource string, token uint64, f func(state []byte) ([]byte, error)) error {
	return g.update(ctx, resource, token, func(v version) ([]byte, error) {
		state, err := f(bytes.Clone(v.State))
		if err != nil {
			err = &fence.StepError{Step: fence.StepWrite, Resource: resource, Token: token, Err: err}
		}
		return state, err
	})
}

func (g *Guard) update(ctx context.Context, resource string, token uint64, f func(version) ([]byte, error)) error {
	var failed error
	_, err := g.swap(ctx, fence.StepCommit, resource, token, func(v version) (state []byte, write bool) {
		state, failed = f(v)
		return state, failed == nil
	})
	if doubt := (*fence.StepError)(nil); failed != nil && errors.As(err, &doubt) {
		doubt.Err = errors.Join(failed, doubt.Err)
	}
	if err == nil {
		err = failed
	}
	return err
}

// doubts is how many writes of one call may end without an answer before it gives up, and refusals how many the store
// may refuse whose version is still there.
const (
	doubts   = 3
	refusals = 32
)

// swap reads the manifest, and writes what next says, until a write has happened or next wants none.
//
// A write that the store has not acknowledged may have happened, or may happen later: as long as the version is the
// one that it was conditional on. The manifests that follow tell whether it has.
func (g *Guard) swap(ctx context.Context, step fence.Step, resource string, token uint64, next func(version) ([]byte, bool)) ([]byte, error) {
	if err := fence.CheckToken(resource, token); err != nil {
		return nil, err
	}
	var (
		key    = g.Key(resource)
		open   []attempt // whose fate is unknown
		silent int       // how many of all attempts had no answer
		last   error     // of these
	)
	failed := func(err error) ([]byte, error) {
		at := step
		if at == fence.StepCommit && len(open) == 0 {
			at = fence.StepEnter // no write was sent, or none has happened
		}
		if at == fence.StepCommit {
			for _, a := range open {
				g.doubt(resource, a.on.at)
			}
		}
		return nil, &fence.StepError{Step: at, Resource: resource, Token: token, Err: errors.Join(err, last)}
	}
	for longest := 2 * time.Millisecond; ; longest = min(2*longest, 256*time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return failed(err)
		}
		v, err := g.read(ctx, key, resource)
		if err != nil {
			return failed(err)
		}
		left := open[:0]
		for _, a := range open {
			switch fate := v.fate(a); {
			case fate == written && (step == fence.StepCommit || v.Nonce == a.nonce):
				return v.State, nil
			case fate == doubtful:
				left = append(left, a)
			}
		}
		open = left
		stale := fence.Admit(resource, v.token, token)
		switch {
		case step == fence.StepCommit && slices.ContainsFunc(open, func(a attempt) bool { return a.on.at != v.at }):
			return failed(stale) // more was written since than the manifest tells
		case stale != nil:
			return nil, stale
		case silent == doubts, len(open) == refusals:
			return failed(nil)
		}
		state, write := next(v)
		if step == fence.StepClaim && g.doubted(resource, v.at) {
			write = true // another version, which no write in doubt replaces
		}
		if !write && len(open) > 0 && step == fence.StepCommit {
			return failed(nil) // these may still happen
		}
		if !write {
			return v.State, nil
		}
		a := attempt{rand.Text(), v}
		before := append([]string{v.Nonce}, v.Before...)
		body, err := json.Marshal(manifest{[]byte(resource), strconv.FormatUint(token, 10), a.nonce, state, before[:min(len(before), mostBefore)]})
		if err != nil {
			return failed(err)
		}
		err = g.store.Put(ctx, key, body, v.at)
		if err == nil {
			g.settle(resource, v.at)
			return state, nil
		}
		if errors.Is(err, ErrTooLarge) {
			return failed(err)
		}
		open = append(open, a)
		if !errors.Is(err, ErrConflict) {
			silent, last = silent+1, err
		}
		if err := claims.Sleep(ctx, mathrand.N(longest)); err != nil {
			return failed(err)
		}
	}
}

// doubt remembers that a write without an answer may still replace a version.
func (g *Guard) doubt(resource, on string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.doubts[resource] == nil {
		g.doubts[resource] = map[string]bool{}
	}
	g.doubts[resource][on] = true
}

// doubted reports whether such a write may replace a version.
func (g *Guard) doubted(resource, at string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.doubts[resource][at]
}

// settle forgets a version that is not there any more.
func (g *Guard) settle(resource, at string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.doubts[resource], at); len(g.doubts[resource]) == 0 {
		delete(g.doubts, resource)
	}
}

func (g *Guard) read(ctx context.Context, key, resource string) (v version, err error) {
	body, at, err := g.store.Get(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return version{}, nil
	}
	if err != nil {
		return version{}, err
	}
	if err := json.Unmarshal(body, &v.manifest); err != nil || string(v.Resource) != resource || v.Nonce == "" || at == "" {
		return version{}, fmt.Errorf("%w: %s", ErrDamaged, key)
	}
	v.at = at
	v.token, err = strconv.ParseUint(v.Token, 10, 64)
	if err != nil || fence.CheckToken(resource, v.token) != nil {
		return version{}, fmt.Errorf("%w: %s", ErrDamaged, key)
	}
	return v, nil
}
