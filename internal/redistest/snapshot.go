package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

var errNoSnapshot = errors.New("redistest: Rollback without a Snapshot before")

// saved is one key of an embedded server's snapshot.
type saved struct {
	key     string
	expires time.Time // on the server's clock; zero: never
	text    string
	fields  map[string]string
	scores  map[string]float64
	list    []string
	set     []string
}

// Snapshot remembers the data of database 0 for Rollback.
func (e *Embedded) Snapshot() error {
	e.exec.Lock()
	defer e.exec.Unlock()
	e.tick()
	db := e.redis.DB(0)
	snap := []saved{}
	for _, key := range db.Keys() {
		k := saved{key: key}
		if ttl := db.TTL(key); ttl > 0 {
			k.expires = e.clock.now().Add(ttl)
		}
		var err error
		switch kind := db.Type(key); kind {
		case "string":
			k.text, err = db.Get(key)
		case "hash":
			var names []string
			names, err = db.HKeys(key)
			k.fields = map[string]string{}
			for _, f := range names {
				k.fields[f] = db.HGet(key, f)
			}
		case "zset":
			k.scores, err = db.SortedSet(key)
		case "list":
			k.list, err = db.List(key)
		case "set":
			k.set, err = db.Members(key)
		default:
			err = errors.New("a " + kind + " cannot be saved by the embedded server")
		}
		if err != nil {
			return fmt.Errorf("redistest: snapshot of %q: %w", key, err)
		}
		snap = append(snap, k)
	}
	e.snap = snap
	return nil
}

// Rollback restarts the server with the data of the latest Snapshot. What has expired since is gone.
func (e *Embedded) Rollback() error {
	e.exec.Lock()
	snap := e.snap
	e.exec.Unlock()
	if snap == nil {
		return errNoSnapshot
	}
	return e.restart(func() error {
		e.redis.FlushAll()
		e.tick()
		return e.restore(snap)
	})
}

func (e *Embedded) restore(snap []saved) error {
	db, now := e.redis.DB(0), e.clock.now()
	for _, k := range snap {
		if !k.expires.IsZero() && !now.Before(k.expires) {
			continue
		}
		var err error
		switch {
		case k.fields != nil:
			for f, v := range k.fields {
				db.HSet(k.key, f, v)
			}
		case k.scores != nil:
			for member, score := range k.scores {
				if _, e := db.ZAdd(k.key, score, member); e != nil {
					err = e
				}
			}
		case k.list != nil:
			_, err = db.Push(k.key, k.list...)
		case k.set != nil:
			_, err = db.SetAdd(k.key, k.set...)
		default:
			err = db.Set(k.key, k.text)
		}
		if err != nil {
			return fmt.Errorf("redistest: restoring %q: %w", k.key, err)
		}
		if !k.expires.IsZero() {
			db.SetTTL(k.key, k.expires.Sub(now))
		}
	}
	return nil
}

// Snapshot copies the file that the server keeps its data in.
func (r *Real) Snapshot() error {
	name, err := r.dataName()
	if err != nil {
		return err
	}
	if r.persistence() == SavedOnly {
		ctx, cancel := patience()
		defer cancel()
		if _, err := r.ask(ctx, "SAVE"); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return replaceTree(filepath.Join(r.dir, "snapshot"), filepath.Join(r.dir, name))
}

// Rollback restarts the process with the data of the latest Snapshot.
func (r *Real) Rollback() error {
	name, err := r.dataName()
	if err != nil {
		return err
	}
	from := filepath.Join(r.dir, "snapshot")
	if _, err := os.Stat(from); err != nil {
		return errNoSnapshot
	}
	return r.restart(func() error { return replaceTree(filepath.Join(r.dir, name), from) })
}

// dataName is the file or directory with the data. An append-only file may be copied while it grows:
// the copy is what was written up to some moment after the call.
func (r *Real) dataName() (string, error) {
	switch r.persistence() {
	case Volatile:
		return "", errors.New("redistest: a volatile server has no snapshots")
	case SavedOnly:
		return dumpFile, nil
	}
	if _, err := os.Stat(filepath.Join(r.dir, appendOnlyDir)); err != nil {
		return appendOnlyFile, nil
	}
	return appendOnlyDir, nil
}

// replaceTree makes to a copy of from, a file or a directory of files.
func replaceTree(to, from string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o600)
	}
	return os.CopyFS(to, os.DirFS(from))
}
