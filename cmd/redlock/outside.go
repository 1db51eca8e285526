package main

import (
	"encoding/json"
	"io"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/internal/printable"
)

// rawOutput marks a command of which stdout is for a shell ("stdout"), or which draws on the terminal
// itself ("all").
const rawOutput = "raw-output"

// escaping is an output through which text from outside, such as what a member says, cannot control a terminal.
type escaping struct{ to io.Writer }

func (e escaping) Write(b []byte) (int, error) {
	if _, err := e.to.Write(printable.Lines(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

// escape has cmd print through escaping.
func escape(cmd *cobra.Command, stdout, stderr io.Writer) {
	raw := cmd.Annotations[rawOutput]
	if raw == "" {
		cmd.Root().SetOut(escaping{stdout})
	}
	if raw != "all" {
		cmd.Root().SetErr(escaping{stderr})
	}
}

// exact is a name, or the value of a leader, for a field beside the one that has it as text: nil if JSON
// has it exactly. JSON is UTF-8.
func exact(s string) []byte {
	if utf8.ValidString(s) {
		return nil
	}
	return []byte(s)
}

// MarshalJSON implements json.Marshaler.
func (s runStatus) MarshalJSON() ([]byte, error) {
	type plain runStatus
	more := struct {
		plain
		KeyBytes  []byte   `json:"key_base64,omitempty"`
		KeysBytes [][]byte `json:"keys_base64,omitempty"` // all, if any of them needs it
	}{plain: plain(s), KeyBytes: exact(s.Key)}
	for _, k := range s.Keys {
		if more.KeysBytes != nil || exact(k) == nil {
			continue
		}
		for _, k := range s.Keys {
			more.KeysBytes = append(more.KeysBytes, []byte(k))
		}
	}
	text, err := json.Marshal(more)
	return printable.Lines(text), err
}

// MarshalJSON implements json.Marshaler.
func (e event) MarshalJSON() ([]byte, error) {
	type plain event
	return json.Marshal(struct {
		plain
		KeyBytes []byte `json:"key_base64,omitempty"`
	}{plain(e), exact(e.Key)})
}
