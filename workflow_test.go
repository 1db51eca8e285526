package redquorum_test

import (
	"os"
	"path/filepath"
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
