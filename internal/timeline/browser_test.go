package timeline

import (
	"bytes"
	_ "embed" // the probe
	"encoding/json"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

//go:embed testdata/probe.js
var probe string

var report = regexp.MustCompile(`(?s)<pre id="report">(.*?)</pre>`)

func TestLongBrowserShowsThePageWithoutOverlapsAndWithTheFiguresOfTheLog(t *testing.T) {
	rt.Long(t, "starts a browser")
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skipf("BROWSER MISSING: %v; install it (Debian: apt-get install chromium)", err)
	}
	for name, l := range map[string]*Log{"clean": random(2, 4, 300, false), "two at once": random(3, 40, 200, true), "hostile": hostile()} {
		var b bytes.Buffer
		require.NoError(t, l.HTML(&b))
		file := filepath.Join(t.TempDir(), "page.html")
		text := strings.Replace(b.String(), "script-src '", "script-src '"+hashOf(probe)+"' '", 1)
		text = strings.Replace(text, "</body>", "<script>"+probe+"</script></body>", 1)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, window := range []struct{ size, scheme string }{{"1400,900", "1"}, {"500,900", "0"}} {
			out, err := exec.CommandContext(t.Context(), program, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(),
				"--window-size="+window.size, "--blink-settings=preferredColorScheme="+window.scheme, "--dump-dom", "file://"+file).Output()
			require.NoError(t, err)
			m := report.FindSubmatch(out)
			require.NotNil(t, m, "the probe has not run")
			var told struct{ Found, Leases []string }
			require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &told))
			require.Empty(t, told.Found, "%s in %s", name, window.size)
			require.Equal(t, len(l.Holds), leasesOf(strings.Join(told.Leases, "\n")), name)
		}
	}
}
