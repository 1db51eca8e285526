package resp

import "strings"

// Field finds the line that begins with name in the answer to INFO and returns the rest of it.
func Field(info []byte, name string) string {
	for line := range strings.Lines(string(info)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
