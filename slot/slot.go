package slot

import (
	"strings"
	"unsafe"

	"github.com/sigurn/crc16"
)

// Count is the number of slots of a Redis Cluster. Slots are numbered from 0 to Count-1.
const Count = 16384

// xmodem holds the parameters that the cluster specification names: polynomial 0x1021, initial value
// 0, nothing reflected, no final XOR, 0x31C3 for "123456789".
var xmodem = crc16.MakeTable(crc16.CRC16_XMODEM)

// Of returns the slot of key, from 0 to Count-1. Any bytes are a valid key, even the empty string
// (slot 0). Of does not allocate.
//
// Source: Redis Cluster specification, "Key distribution model" and "Hash tags",
// https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
func Of(key string) uint16 {
	return sum(Tag(key)) % Count
}

// Tag returns the hash tag of key, the part that decides its slot. That is the bytes between the
// first '{' and the first '}' after it. If there is no such pair, or nothing between the two, it is
// all of key.
//
//	{user1}.following  user1
//	a{b}{c}            b
//	a{{b}}c            {b
//	a{}{b}             a{}{b}    the first pair counts, and it is empty
//	a}b{c              a}b{c     no '}' after the '{'
//
// The result shares the memory of key.
func Tag(key string) string {
	if start, end, ok := tagged(key); ok {
		return key[start:end]
	}
	return key
}

// tagged reports whether key has a hash tag, and between which offsets.
func tagged(key string) (start, end int, ok bool) {
	start = strings.IndexByte(key, '{') + 1
	if start == 0 {
		return 0, 0, false
	}
	length := strings.IndexByte(key[start:], '}')
	return start, start + length, length > 0
}

// sum is the CRC16 of the bytes of s. The checksum only reads its argument, so it may look at the
// memory of the string itself; a conversion would copy names of more than 32 bytes to the heap.
func sum(s string) uint16 {
	return crc16.Checksum(unsafe.Slice(unsafe.StringData(s), len(s)), xmodem)
}
