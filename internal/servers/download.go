package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The Debian packages that have the clients.
var clients = map[registry]string{pypi: "python3-pip", maven: "maven", debian: "apt"}

// download fetches a package into an empty folder, by the client of its registry.
func download(ctx context.Context, p pkg, dir string) (string, error) {
	if _, err := exec.LookPath(string(p.from)); err != nil {
		return "", fmt.Errorf("%s is not in PATH (Debian: apt-get install %s)", p.from, clients[p.from])
	}
	var err error
	switch p.from {
	case pypi:
		err = command(ctx, dir, "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
			"--python-version", p.python, "--platform", p.platform, "-d", dir, p.name+"=="+p.version)
	case maven:
		err = command(ctx, dir, "mvn", "-q", "-B", "dependency:copy", "-Dartifact="+p.name+":"+p.version, "-DoutputDirectory="+dir)
	case debian:
		var options []string
		if p.suite != "" {
			if options, err = suite(ctx, dir, p.suite); err != nil {
				return "", err
			}
		}
		err = command(ctx, dir, "apt-get", append(options, "-q", "download", p.name+"="+p.version)...)
	}
	if err != nil {
		return "", err
	}
	for _, pattern := range []string{"*.whl", "*.jar", "*.deb"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) == 1 {
			return found[0], nil
		}
	}
	return "", fmt.Errorf("%s fetched nothing", p.from)
}

// suite returns the options by which apt-get knows one more suite of the archive that it has its packages from, in
// lists of its own: what is configured here is not changed.
func suite(ctx context.Context, dir, name string) ([]string, error) {
	release, _, _ := strings.Cut(name, "-")
	said, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)").Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get indextargets: %w", err)
	}
	archive := ""
	for line := range strings.Lines(string(said)) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == release && f[2] == "main" {
			archive = f[0]
		}
	}
	if archive == "" {
		return nil, fmt.Errorf("apt-get has no lists of %s main here: it needs Debian %s and apt-get update", release, release)
	}
	sources, lists := filepath.Join(dir, "sources.list"), filepath.Join(dir, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(sources, []byte("deb "+archive+" "+name+" main\n"), 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=-", "-o", "Dir::State::lists=" + lists,
		"-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=", "-o", "APT::Sandbox::User=",
	}
	return options, command(ctx, dir, "apt-get", append(options, "-q", "update")...)
}

// command runs a program in a folder. What it said is told where it fails.
func command(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%s is not in PATH", name)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(string(said)))
	}
	return nil
}
