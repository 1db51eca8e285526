package redquorum_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"go.yaml.in/yaml/v3"
)

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
