//go:build unix

package fencing

import "encoding/json"

// manifest is what an object of fenceobj has.
type manifest struct {
	Resource []byte `json:"resource"`
	Token    string `json:"token"`
	Nonce    string `json:"nonce"`
	State    []byte `json:"state"`
}

func stateOf(body []byte) string {
	var m manifest
	if json.Unmarshal(body, &m) != nil {
		return ""
	}
	return string(m.State)
}

func bodyOf(resource, state string) []byte {
	body, err := json.Marshal(manifest{[]byte(resource), "1", "overwritten " + state, []byte(state)})
	if err != nil {
		panic(err)
	}
	return body
}
