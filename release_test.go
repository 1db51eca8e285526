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
	"go.yaml.in/yaml/v3"

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

// workflow is what the tests read of a hosted workflow.
type workflow struct {
	On   map[string]any
	Jobs map[string]struct {
		Minutes  int `yaml:"timeout-minutes"`
		Strategy struct {
			Matrix struct {
				Step    []string
				Part    []int
				Include []map[string]string
			}
		}
		Steps []struct {
			Uses, Run string
			With, Env map[string]string
		}
	}
}

// stepsOfRun are the steps that .ci/run has, and those that it runs without being told which.
func stepsOfRun(t *testing.T) (all, usual []string) {
	t.Helper()
	text := rt.Must(os.ReadFile(filepath.Join(".ci", "run")))(t)
	for _, m := range regexp.MustCompile(`(?m)^step_(\w+)\(\)`).FindAllSubmatch(text, -1) {
		all = append(all, string(m[1]))
	}
	said := regexp.MustCompile(`(?m)^\[ \$# -gt 0 \] \|\| set -- (.*)$`).FindSubmatch(text)
	require.NotNil(t, said)
	return all, strings.Fields(string(said[1]))
}

// The hosted workflows run each step of .ci/run as a job of its own: with each change those that .ci/run runs, and by
// night all parts of the second ring, and the first.
func TestWorkflowsRunEachStepOfContinuousIntegration(t *testing.T) {
	all, usual := stepsOfRun(t)
	changed := slices.DeleteFunc(slices.Clone(all), func(step string) bool { return step == "mutants" || step == "cost" })
	for _, tc := range []struct {
		file, job, run string
		on, steps      []string
		parts          []int
	}{
		{"ci.yml", "ci", "${{ matrix.step }}", []string{"push", "pull_request"}, changed, nil},
		{"nightly.yml", "all", "${{ matrix.step }}", []string{"schedule"}, []string{"part", "test", "cost"}, []int{1, 2, 3, 4, 5, 6}},
		{"nightly.yml", "mutants", "mutants", []string{"schedule"}, nil, nil},
	} {
		text := rt.Must(os.ReadFile(filepath.Join(".github", "workflows", tc.file)))(t)
		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w))
		for _, on := range tc.on {
			assert.Contains(t, w.On, on, tc.file)
		}
		require.Contains(t, w.Jobs, tc.job, tc.file)
		job := w.Jobs[tc.job]
		assert.Positive(t, job.Minutes)
		steps := job.Strategy.Matrix.Step
		for _, one := range job.Strategy.Matrix.Include {
			steps = append(steps, one["step"])
		}
		assert.ElementsMatch(t, tc.steps, steps, tc.file)
		assert.Equal(t, tc.parts, job.Strategy.Matrix.Part, tc.file)
		ran := false
		for _, s := range job.Steps {
			if s.Uses != "" {
				assert.Regexp(t, `^actions/[a-z-]+@v\d+\.\d+\.\d+$`, s.Uses, "an action has its version")
			}
			if s.Run == ".ci/run "+tc.run {
				ran = true
				assert.Equal(t, "auto", s.Env["GOTOOLCHAIN"], "a module that needs a newer Go gets it")
				assert.Equal(t, tc.parts != nil, s.Env["PART"] == "${{ matrix.part }}", "the part of the matrix runs, or else the one of .ci/part")
			}
		}
		assert.True(t, ran, "%s runs .ci/run", tc.file)
	}
	for _, step := range []string{"lint", "portable", "oldest", "test", "servers", "part"} {
		assert.Contains(t, usual, step)
	}
	assert.NotZero(t, rt.Must(os.Stat(filepath.Join(".ci", "run")))(t).Mode()&0o100, ".ci/run can be executed")
	assert.Regexp(t, `^[1-6]\n$`, string(rt.Must(os.ReadFile(filepath.Join(".ci", "part")))(t)))
}

// Who has no registry is told what takes its place, and nobody else. Who has no daemon is told that.
func TestSetOfContainersThatDoesNotStartNamesTheImagesOfThisMachine(t *testing.T) {
	for fails, told := range map[string]string{"image*": "export REDIS_IMAGE=$(docker/set image)", "info": "daemon does not answer", "none": ""} {
		dir := t.TempDir()
		docker := "#!/bin/sh\ncase \"$*\" in " + fails + ") exit 1 ;; *version | image* | info) ;; *config) echo image: redis ;; *) exit 1 ;; esac\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte(docker), 0o755))
		cmd := exec.CommandContext(t.Context(), "docker/set", "up")
		cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
		said, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(said), told)
		require.Equal(t, fails == "image*", strings.Contains(string(said), "export REDIS_IMAGE"), "%s", said)
	}
}

// A shell that had the set with TLS has none of its certificates with the next set: redlock would refuse them.
func TestSetOfContainersWithoutTLSTakesBackTheCertificatesOfTheOneBefore(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\n"), 0o755))
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `eval "$(docker/set up sentinel)"; env | grep -E '^REDLOCK_(MEMBERS|TLS)'`)
	cmd.Env = append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"), "REDLOCK_TLS_CA=a", "REDLOCK_TLS_CERT=b", "REDLOCK_TLS_KEY=c")
	left, err := cmd.Output()
	require.NoError(t, err)
	require.Equal(t, "REDLOCK_MEMBERS=redis-sentinel://127.0.0.1:7211,127.0.0.1:7212,127.0.0.1:7213/locks\n", string(left))
}

// The README names the oldest Go that every published module takes, and the one that a checkout needs. Continuous
// integration vets the modules with the oldest, and for the systems that the README names.
func TestReadmeSaysWhichGoAndWhichSystems(t *testing.T) {
	readme := rt.Must(os.ReadFile("README.md"))(t)
	said := regexp.MustCompile("`go.mod` asks for (1\\.\\d+)\\.").FindSubmatch(readme)
	require.NotNil(t, said)
	for _, folder := range published {
		mod := rt.Must(os.ReadFile(filepath.Join(folder, "go.mod")))(t)
		assert.Regexp(t, `(?m)^go `+regexp.QuoteMeta(string(said[1]))+`\.0$`, string(mod), folder)
	}
	work := regexp.MustCompile(`(?m)^go (1\.\d+)\.`).FindSubmatch(rt.Must(os.ReadFile("go.work"))(t))
	assert.Contains(t, string(readme), "A checkout needs "+string(work[1])+" (`go.work`)")
	assert.Contains(t, string(rt.Must(os.ReadFile("CONTRIBUTING.md"))(t)), "You need Go "+string(work[1])+" or later")
	_, usual := stepsOfRun(t)
	assert.Subset(t, usual, []string{"oldest", "portable"})
	assert.Contains(t, string(rt.Must(os.ReadFile("Makefile"))(t)), "for system in windows darwin;")
	assert.Regexp(t, `on macOS and Windows, CI only\s+vets`, string(readme))
}
