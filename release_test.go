package redquorum_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

const root = "github.com/redquorum/redquorum"

// published are the modules that a release tags, by the folder that each is in.
var published = []string{"", "fence/fencegrpc/", "fence/fencepgx/", "fence/fences3/", "redlock/redlockgocron/", "redlock/redlockotel/", "redlock/redlockprom/"}

func TestReleaseTagsEveryModule(t *testing.T) {
	t.Parallel()
	r := checkout(t)
	version := "v" + r.unreleased()
	before := r.must(r.dir, "git", "rev-parse", "HEAD")

	refusals := []struct{ arg, says string }{
		{"", "give one version"},
		{version[1:], "give one version"},
		{"v0.1", "give one version"},
		{"v0.01.0", "give one version"},
		{"v2.0.0", "give one version"},
		{"v0.998.0", `no line "## [0.998.0] - unreleased"`},
	}
	for _, c := range refusals {
		r.refuses(c.arg, c.says)
	}
	stray := filepath.Join(r.dir, "stray")
	require.NoError(t, os.WriteFile(stray, nil, 0o600))
	r.refuses(version, "the tree has changes")
	require.NoError(t, os.Remove(stray))
	r.must(r.dir, "git", "tag", "redlock/redlockprom/"+version)
	r.refuses(version, "the tag redlock/redlockprom/"+version+" exists")
	r.must(r.dir, "git", "tag", "-d", "redlock/redlockprom/"+version)
	assert.Empty(t, r.must(r.dir, "git", "tag"))
	assert.Equal(t, before, r.must(r.dir, "git", "rev-parse", "HEAD"))
	assert.Empty(t, r.must(r.dir, "git", "status", "--porcelain"))

	said := r.must(r.dir, "tools/release", version)
	var tags []string
	for _, folder := range published {
		tags = append(tags, folder+version)
	}
	assert.ElementsMatch(t, tags, strings.Fields(r.must(r.dir, "git", "tag")))
	for _, tag := range tags {
		assert.Contains(t, said, " "+tag)
		assert.Equal(t, r.must(r.dir, "git", "rev-parse", "HEAD"), r.must(r.dir, "git", "rev-parse", tag+"^{commit}"))
	}
	assert.Empty(t, r.must(r.dir, "git", "status", "--porcelain"))
	assert.Contains(t, r.text("CHANGELOG.md"), "\n## ["+version[1:]+"] - "+time.Now().UTC().Format(time.DateOnly)+"\n")
	assert.Contains(t, r.text("README.md"), "\n- Status: "+version[1:]+" is the latest release. ")
	r.refuses(version, version+" exists")
}

// What tools/release makes resolves for an importer: the library with metrics and spans, and go install of the command.
func TestLongReleaseResolvesForAnImporter(t *testing.T) {
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("compiles the modules and what they need once more: make test-long")
	}
	r := checkout(t)
	version := "v" + r.unreleased()
	r.must(r.dir, "tools/release", version)
	r.imports(version)
}

type repository struct {
	*testing.T
	dir string
	env []string
}

func checkout(t *testing.T) *repository {
	listed, err := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("needs git, and a checkout: %v", err)
	}
	r := &repository{T: t, dir: filepath.Join(t.TempDir(), "repository"), env: []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull, "GOFLAGS=-modcacherw", "GOWORK=",
		"GIT_AUTHOR_NAME=nobody", "GIT_AUTHOR_EMAIL=nobody@example.com", "GIT_COMMITTER_NAME=nobody", "GIT_COMMITTER_EMAIL=nobody@example.com",
	}}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		info, err := os.Lstat(name)
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		text := rt.Must(os.ReadFile(name))(t)
		to := filepath.Join(r.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, info.Mode()))
	}
	// The version that is next, or one of this test's own if there is none.
	if r.unreleased() == "" {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir, "CHANGELOG.md"), []byte(r.text("CHANGELOG.md")+"\n## [0.999.0] - unreleased\n"), 0o600))
	}
	r.must(r.dir, "git", "init", "-q")
	r.must(r.dir, "git", "add", "-A")
	r.must(r.dir, "git", "commit", "-qm", "all")
	return r
}

func (r *repository) text(name string) string {
	return string(rt.Must(os.ReadFile(filepath.Join(r.dir, name)))(r))
}

// unreleased returns the version that the changelog has no date for.
func (r *repository) unreleased() string {
	found := regexp.MustCompile(`(?m)^## \[(.*)\] - unreleased$`).FindStringSubmatch(r.text("CHANGELOG.md") + "\n")
	if found == nil {
		return ""
	}
	return found[1]
}

// run runs a program in a folder, and returns what it wrote to each of its outputs. Words with a = before its name are
// variables of its environment.
func (r *repository) run(dir string, words ...string) (stdout, stderr string, _ error) {
	env := append(os.Environ(), r.env...)
	for strings.Contains(words[0], "=") {
		env, words = append(env, words[0]), words[1:]
	}
	var out, err bytes.Buffer
	cmd := exec.CommandContext(r.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, &out, &err
	failed := cmd.Run()
	return strings.TrimSpace(out.String()), err.String(), failed
}

func (r *repository) must(dir string, words ...string) string {
	r.Helper()
	stdout, stderr, err := r.run(dir, words...)
	require.NoError(r, err, "%q: %s", words, stderr)
	return stdout
}

func (r *repository) refuses(version, says string) {
	r.Helper()
	_, stderr, err := r.run(r.dir, "tools/release", version)
	assert.Error(r, err)
	assert.Contains(r, stderr, says)
}

// importer is a program that needs the library with metrics and spans. Its module requires every published one: to build
// those with an SDK takes too long here.
const importer = `package main

import (
	"fmt"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlockotel"
	"github.com/redquorum/redquorum/redlock/redlockprom"
)

func main() {
	for _, tracer := range []redlock.Tracer{redlockotel.New(), redlockprom.New().Tracer()} {
		fmt.Printf("%v ", tracer.CallEnd != nil)
	}
}
`

// imports builds an importer of a version. The go command has the modules from a tree of files, as from a module proxy,
// that it made itself from the tags.
func (r *repository) imports(version string) {
	dir := r.TempDir()
	files := func(modules string) string {
		return "file://" + filepath.ToSlash(filepath.Join(modules, "cache", "download"))
	}
	offline := []string{"GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", "GONOSUMDB=", "GOTOOLCHAIN=local"}

	// Other modules come from the cache of this machine. This fills it with the versions that the importer needs.
	workspace := "GOWORK=" + filepath.Join(dir, "go.work")
	packages := []string{workspace, "go", "list", "-deps", root + "/redlock", root + "/cmd/redlock"}
	folders := []string{workspace, "go", "work", "init"}
	for _, folder := range published {
		folders = append(folders, "./"+folder)
		if folder != "" {
			packages = append(packages, root+"/"+strings.TrimSuffix(folder, "/"))
		}
	}
	r.must(r.dir, folders...)
	r.must(r.dir, packages...)

	proxy, from := filepath.Join(dir, "proxy"), filepath.ToSlash(r.dir)
	download := append(slices.Clip(offline), "GOMODCACHE="+proxy, "GOPROXY=direct",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+from+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+root,
		"go", "mod", "download")
	// The importer does not name the root's version, which has to come from what the nested modules require.
	mod := "module example.com/importer\n\ngo 1.25.0\n"
	for _, folder := range published {
		path := strings.TrimSuffix(root+"/"+folder, "/")
		download = append(download, path+"@"+version)
		if folder != "" {
			mod += "\nrequire " + path + " " + version + "\n"
		}
	}
	r.must(dir, download...)

	env := append(slices.Clip(offline), "GOMODCACHE="+filepath.Join(dir, "modules"),
		"GOPROXY="+files(proxy)+","+files(r.must(dir, "go", "env", "GOMODCACHE")),
		"GOFLAGS=-mod=mod -modcacherw -trimpath", "GOWORK=off", "GOBIN="+dir)
	online := func(words ...string) []string { return slices.Concat(env, words) }
	program := filepath.Join(dir, "importer")
	require.NoError(r, os.Mkdir(program, 0o755))
	require.NoError(r, os.WriteFile(filepath.Join(program, "go.mod"), []byte(mod), 0o600))
	require.NoError(r, os.WriteFile(filepath.Join(program, "main.go"), []byte(importer), 0o600))
	assert.Equal(r, "true true", r.must(program, online("go", "run", ".")...))
	for _, folder := range published {
		path := strings.TrimSuffix(root+"/"+folder, "/")
		assert.Equal(r, path+" "+version, r.must(program, online("go", "list", "-m", path)...))
	}

	assert.Equal(r, root+" "+version, r.must(dir, online("go", "list", "-m", root+"@latest")...))
	r.must(dir, online("go", "install", root+"/cmd/redlock@"+version)...)
	assert.Regexp(r, "^redlock "+regexp.QuoteMeta(version)+" ", r.must(dir, "./redlock", "version"))
}
