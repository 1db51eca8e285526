package printable

import (
	"fmt"
	"strconv"
)

// Quote renders a lock's name for an error or a log. It quotes the name and cuts it after 64 bytes,
// because a name may be binary and of any length.
func Quote(key string) string {
	if len(key) <= 64 {
		return strconv.Quote(key)
	}
	return strconv.Quote(key[:64]) + fmt.Sprintf("… (%d bytes)", len(key))
}
