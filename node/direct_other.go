//go:build !unix

package node

// put leaves everything to the runtime.
func put(uintptr, []byte) (int, error) { return 0, nil }
