package slot

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/sigurn/crc16"
)

// tagLen is the length of every tag of the table. Two characters of the alphabet are too few to
// reach all slots, and so are three of only digits and small letters.
const tagLen = 3

const tagAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// TagOf returns a string of three ASCII letters and digits whose slot is the given one. It always
// returns the same one, so a key with the hash tag {TagOf(s)} is kept in slot s. It panics if slot
// is not below Count. The first call fills the table, and later calls do not allocate.
//
// The tags are parts of key names in Redis, so changing one would separate clients of different
// versions. The tag of a slot is the first string of three characters, in byte order, that hashes
// to it.
func TagOf(slot uint16) string {
	if slot >= Count {
		panic(fmt.Sprintf("slot: TagOf(%d): slots are below %d", slot, Count))
	}
	at := int(slot) * tagLen
	return tags()[at : at+tagLen]
}

// tags returns all tags in the order of their slots, one behind the other: 48 KB without a pointer in
// it, where a slice of strings would take 300 KB. Filling it tries 69,127 strings.
var tags = sync.OnceValue(func() string {
	table := make([]byte, Count*tagLen)
	missing := Count
	for a := range len(tagAlphabet) {
		crcA := crc16.Update(0, []byte{tagAlphabet[a]}, xmodem)
		for b := range len(tagAlphabet) {
			crcB := crc16.Update(crcA, []byte{tagAlphabet[b]}, xmodem)
			for c := range len(tagAlphabet) {
				slot := crc16.Update(crcB, []byte{tagAlphabet[c]}, xmodem) % Count
				entry := table[int(slot)*tagLen:][:tagLen]
				if entry[0] != 0 {
					continue
				}
				entry[0], entry[1], entry[2] = tagAlphabet[a], tagAlphabet[b], tagAlphabet[c]
				if missing--; missing == 0 {
					return unsafe.String(&table[0], len(table)) // never written again
				}
			}
		}
	}
	panic("slot: the alphabet does not reach every slot")
})
