package fencefile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/internal/claims"
)

// ErrDamaged is matched by the error for a file of the guard that the guard has not written. The
// guard accepts no token of that resource until an operator has put the file right: its greatest
// token is not known.
var ErrDamaged = errors.New("fencefile: damaged token")

// Guard is a fence.AtomicGuard over a folder. It is safe for concurrent use, also by several
// processes.
type Guard struct {
	dir    string
	synced sync.Map // path of a token: the token that this guard has seen onto the disk
}

var _ fence.AtomicGuard = (*Guard)(nil)

// Open returns the guard over a folder. If the folder is missing, Open makes it, on disk. It returns
// an error that matches errors.ErrUnsupported on systems without flock.
func Open(dir string) (*Guard, error) {
	if !supported {
		return nil, fmt.Errorf("fencefile: %w on this system", errors.ErrUnsupported)
	}
	if dir == "" {
		return nil, errors.New("fencefile: no folder")
	}
	dir, err := filepath.Abs(dir) // the program may change its folder
	if err != nil {
		return nil, fmt.Errorf("fencefile: %w", err)
	}
	if err := makeFolder(dir); err != nil {
		return nil, fmt.Errorf("fencefile: %w", err)
	}
	return &Guard{dir: dir}, nil
}

// Check is the claim. When it returns nil, the token is on disk. ctx bounds the wait for others that
// check or write the resource. See fence.Guard for its results.
func (g *Guard) Check(ctx context.Context, resource string, token uint64) error {
	return g.do(ctx, fence.StepClaim, resource, token, func() error { return nil })
}

// Do runs write if it accepts the token, as fence.AtomicGuard says. The lock on the resource is held
// meanwhile, by this process. If the process dies, the system frees it. Processes that write has
// started go on: wait for them in write.
func (g *Guard) Do(ctx context.Context, resource string, token uint64, write func() error) error {
	return g.do(ctx, fence.StepEnter, resource, token, write)
}

// WriteFile replaces the content of a file, if it accepts the token. Readers see the old content or
// the new one. When WriteFile returns nil, the new content is on disk. A file that is new gets the
// permissions perm; one that was there keeps its own. A symbolic link is replaced, and not what it
// points to.
//
// Errors beside those of Guard.Check: a *fence.StepError with StepWrite. The content is then the old
// one, or the new one if only its folder could not be synced.
func (g *Guard) WriteFile(ctx context.Context, resource string, token uint64, name string, content []byte, perm os.FileMode) error {
	return g.Do(ctx, resource, token, func() error {
		if old, err := os.Stat(name); err == nil {
			perm = old.Mode().Perm()
		}
		if err := replace(name, content, perm); err != nil {
			return &fence.StepError{Step: fence.StepWrite, Resource: resource, Token: token, Err: err}
		}
		return nil
	})
}

func (g *Guard) do(ctx context.Context, step fence.Step, resource string, token uint64, write func() error) error {
	failed := func(err error) error {
		return &fence.StepError{Step: step, Resource: resource, Token: token, Err: err}
	}
	if err := fence.CheckToken(resource, token); err != nil {
		return err
	}
	path := g.path(resource)
	lock, err := locked(ctx, path+".lock")
	if err != nil {
		return failed(err)
	}
	meet()
	defer func() {
		meet()
		_ = lock.Close() // and with it the lock
	}()
	path += ".token"
	highest, err := readToken(path, resource)
	if err != nil {
		return failed(err)
	}
	if err := fence.Admit(resource, highest, token); err != nil {
		return err
	}
	// A token that is there already may not be on disk: who wrote it may have been killed before.
	if known, _ := g.synced.Load(path); token > highest || known != token {
		if err := replace(path, encode(resource, token), 0o600); err != nil {
			return failed(err)
		}
		g.synced.Store(path, token)
	}
	return write()
}

// meet makes what one write did in memory known to the next one of this process. The lock of a file keeps
// them apart, and Go's memory model does not know it. Whoever has that lock meets the others as it comes and
// before it leaves.
func meet() {
	meeting.Lock()
	defer meeting.Unlock()
}

var meeting sync.Mutex

// path is where the files of a resource begin. A name may have bytes and a length that no file name
// may have, so the file has the digest of the name.
func (g *Guard) path(resource string) string {
	digest := sha256.Sum256([]byte(resource))
	return filepath.Join(g.dir, hex.EncodeToString(digest[:]))
}

// encode is the content of a token file: a line, so that a file that was cut short is known.
func encode(resource string, token uint64) []byte {
	return fmt.Appendf(nil, "%020d %q\n", token, resource)
}

func readToken(path, resource string) (uint64, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	digits, _, _ := strings.Cut(string(content), " ")
	token, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || fence.CheckToken(resource, token) != nil || string(encode(resource, token)) != string(content) {
		return 0, fmt.Errorf("%w in %s", ErrDamaged, path)
	}
	return token, nil
}

// replace gives a file new content: all of it, on disk, or none.
func replace(name string, content []byte, perm os.FileMode) (err error) {
	folder := filepath.Dir(name)
	f, err := os.CreateTemp(folder, ".fence-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncFolder(folder)
}

// makeFolder makes a folder, and those above it that are missing. A folder that a loss of power takes
// away takes its claims with it.
func makeFolder(dir string) error {
	var made []string
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			break
		}
		made = append(made, at)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, at := range made {
		if err := syncFolder(filepath.Dir(at)); err != nil {
			return err
		}
	}
	return nil
}

// syncFolder brings the names in a folder to the disk. A test replaces it.
var syncFolder = func(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closed := d.Close(); err == nil {
		err = closed
	}
	return err
}

// The lock is asked for again after a pause, which doubles up to the longest. A call of flock that
// waits could not be ended by a context.
const (
	shortest = 500 * time.Microsecond
	longest  = 16 * time.Millisecond
)

// locked opens a file and locks it. To close the file frees the lock.
func locked(ctx context.Context, name string) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for pause := shortest; ; pause = min(2*pause, longest) {
		free, err := tryLock(f)
		if free {
			return f, nil
		}
		if err == nil {
			err = claims.Sleep(ctx, pause)
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
	}
}
