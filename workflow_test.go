package redquorum_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The hosted workflow runs .ci/run, on the oldest Go that the library works with and on the latest, within a time limit.
func TestWorkflowRunsContinuousIntegration(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(".github", "workflows", "ci.yml"))
	require.NoError(t, err)
	type step struct {
		Uses, Run string
		With, Env map[string]string
	}
	var workflow struct {
		On   map[string]any
		Jobs map[string]struct {
			Minutes  int `yaml:"timeout-minutes"`
			Strategy struct {
				Matrix struct{ Include []map[string]string }
			}
			Steps []step
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &workflow))
	assert.Contains(t, workflow.On, "push")
	assert.Contains(t, workflow.On, "pull_request")
	require.Len(t, workflow.Jobs, 1)
	job := workflow.Jobs["ci"]
	assert.Positive(t, job.Minutes)
	assert.LessOrEqual(t, job.Minutes, 90)

	var ran, with step
	for _, s := range job.Steps {
		if s.Uses != "" {
			assert.Regexp(t, `^actions/[a-z-]+@v\d+\.\d+\.\d+$`, s.Uses, "an action has its version")
		}
		if s.Run == ".ci/run" {
			ran = s
		}
		if s.With["go-version"] != "" {
			with = s
		}
	}
	assert.Equal(t, "auto", ran.Env["GOTOOLCHAIN"], "a module that needs a newer Go gets it")
	program, err := os.Stat(ran.Run)
	require.NoError(t, err)
	assert.NotZero(t, program.Mode()&0o100, ".ci/run can be executed")

	assert.Equal(t, "${{ matrix.version }}", with.With["go-version"])
	assert.Equal(t, "${{ matrix.file }}", with.With["go-version-file"])
	var oldest, latest bool
	for _, one := range job.Strategy.Matrix.Include {
		oldest = oldest || one["file"] == "go.mod" && one["version"] == ""
		latest = latest || one["version"] == "stable" && one["file"] == ""
	}
	assert.True(t, oldest && latest, "%v", job.Strategy.Matrix.Include)
}

// The README names the oldest Go that every published module takes. Continuous integration vets them with it, and for
// the systems that the README names.
func TestReadmeSaysWhichGoAndWhichSystems(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	said := regexp.MustCompile("`go.mod` asks for (1\\.\\d+)\\.").FindSubmatch(readme)
	require.NotNil(t, said)
	for _, folder := range published {
		mod, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^go `+regexp.QuoteMeta(string(said[1]))+`\.0$`, string(mod), folder)
	}
	all, err := os.ReadFile(filepath.Join(".ci", "run"))
	require.NoError(t, err)
	assert.Regexp(t, `(?m)^step on_the_oldest_go$`, string(all))
	assert.Regexp(t, `(?m)^step make portable$`, string(all))
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	assert.Contains(t, string(makefile), "for system in windows darwin;")
	assert.Regexp(t, `for macOS and Windows all is vetted`, string(readme))
}
