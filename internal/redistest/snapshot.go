package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

var errNoSnapshot = errors.New("redistest: Rollback without a Snapshot before")

// Key is one key of an embedded server, and what it has.
type Key struct {
	Name    string
	Expires time.Time // on the server's clock; zero: never
	Text    string
	Fields  map[string]string
	Scores  map[string]float64
	List    []string
	Set     []string
}

// Snapshot remembers the data of database 0 for Rollback.
func (e *Embedded) Snapshot() error {
	e.exec.Lock()
	defer e.exec.Unlock()
	snap, err := e.keys()
	if err == nil {
		e.snap = snap
	}
	return err
}

// keys are those of database 0, by name.
func (e *Embedded) keys() ([]Key, error) {
	e.tick()
	db := e.redis.DB(0)
	all := []Key{}
	for _, key := range db.Keys() {
		k := Key{Name: key}
		if ttl := db.TTL(key); ttl > 0 {
			k.Expires = e.clock.now().Add(ttl)
		}
		var err error
		switch kind := db.Type(key); kind {
		case "string":
			k.Text, err = db.Get(key)
		case "hash":
			var names []string
			names, err = db.HKeys(key)
			k.Fields = map[string]string{}
			for _, f := range names {
				k.Fields[f] = db.HGet(key, f)
			}
		case "zset":
			k.Scores, err = db.SortedSet(key)
		case "list":
			k.List, err = db.List(key)
		case "set":
			k.Set, err = db.Members(key)
		default:
			err = errors.New("a " + kind + " cannot be saved by the embedded server")
		}
		if err != nil {
			return nil, fmt.Errorf("redistest: snapshot of %q: %w", key, err)
		}
		all = append(all, k)
	}
	return all, nil
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

// Reload gives the running server the data of the latest Snapshot: it was the replica of a server that had these, and is a
// master again. Connections stay, and so does the process.
func (e *Embedded) Reload() error {
	e.exec.Lock()
	defer e.exec.Unlock()
	if e.snap == nil {
		return errNoSnapshot
	}
	e.mu.Lock()
	e.older, e.replID = randomID(), randomID()
	e.mu.Unlock()
	e.redis.FlushAll()
	e.tick()
	return e.restore(e.snap)
}

func (e *Embedded) restore(snap []Key) error {
	db, now := e.redis.DB(0), e.clock.now()
	for _, k := range snap {
		if !k.Expires.IsZero() && !now.Before(k.Expires) {
			continue
		}
		var err error
		switch {
		case k.Fields != nil:
			for f, v := range k.Fields {
				db.HSet(k.Name, f, v)
			}
		case k.Scores != nil:
			for member, score := range k.Scores {
				if _, e := db.ZAdd(k.Name, score, member); e != nil {
					err = e
				}
			}
		case k.List != nil:
			_, err = db.Push(k.Name, k.List...)
		case k.Set != nil:
			_, err = db.SetAdd(k.Name, k.Set...)
		default:
			err = db.Set(k.Name, k.Text)
		}
		if err != nil {
			return fmt.Errorf("redistest: restoring %q: %w", k.Name, err)
		}
		if !k.Expires.IsZero() {
			db.SetTTL(k.Name, k.Expires.Sub(now))
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
