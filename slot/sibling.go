package slot

import (
	"fmt"
	"strings"
)

// Sibling returns the name of a key that belongs to key and is kept in its slot:
//
//	prefix:{key}     plain: key is not empty and has no brace
//	prefix:key       tagged: key has a hash tag, and none of the other two forms would look like this
//	prefix:{t}:key   any other key; t = TagOf(Of(key))
//
// For every string of bytes, Of(Sibling(prefix, key)) == Of(key). For one prefix, different keys
// have different siblings. Sibling therefore also uses the third form for a tagged key whose second
// form would be the sibling of another key. There are two cases. The sibling of "{a}" would meet
// that of the plain key "a". If t is the tag of its own slot, a key that begins with "{t}:" would
// meet the third form of what follows.
//
// Siblings of two prefixes are distinct unless one prefix is the other followed by ':' and more.
//
// Sibling panics if prefix has a brace, because the slot would be that of the prefix. It allocates
// nothing but the result.
func Sibling(prefix, key string) string {
	mustBePlain(prefix)
	open, tag, shut, last := around(key)
	return prefix + open + tag + shut + key + last
}

// AppendSibling appends Sibling(prefix, key) to b.
func AppendSibling(b []byte, prefix, key string) []byte {
	mustBePlain(prefix)
	open, tag, shut, last := around(key)
	b = append(append(b, prefix...), open...)
	b = append(append(b, tag...), shut...)
	return append(append(b, key...), last...)
}

// around is what stands between the prefix and the key (the first three), and behind the key.
func around(key string) (open, tag, shut, last string) {
	start, end, ok := tagged(key)
	switch {
	case !ok && key != "" && !hasBrace(key):
		return ":{", "", "", "}"
	case ok && !mistakable(key, start, end):
		return ":", "", "", ""
	default:
		return ":{", TagOf(Of(key)), "}:", ""
	}
}

// mistakable reports whether prefix:key, for a key with a hash tag at key[start:end], is also the
// plain or the third form of another key's sibling.
//
// A plain form is "{x}" with no brace in x; a third form is "{t}:" and anything, and t is the tag of
// its own slot. Both begin with the tag, so a key with bytes before it is neither. No plain form is a
// third form: it ends with its first '}', and a third form has a ':' behind that.
func mistakable(key string, start, end int) bool {
	if start != 1 {
		return false
	}
	tag, rest := key[start:end], key[end+1:]
	if rest == "" {
		return strings.IndexByte(tag, '{') < 0 // no '}' in it: it ends before the first one
	}
	return rest[0] == ':' && len(tag) == tagLen && tag == TagOf(sum(tag)%Count)
}

// Compatible returns the name that Redisson gives to the companion of an object, as in
// "redisson_lock__channel:{orders}":
//
//	prefix:{key}   key has no '{'
//	prefix:key     key has one
//
// Source: RedissonObject.prefixName in Redisson.
//
// Use it only for names that Java clients share with us, because it promises less than Sibling
// does:
//
//   - "a" and "{a}" have the same companion, so a message in such a channel may concern the other
//     object.
//   - The companions of the empty key, and of some keys with unbalanced braces such as "a}b", may
//     be in another slot. On a cluster, compare the slots of both names before a script uses them
//     together. Redisson itself cannot lock such names there.
//
// Compatible panics if prefix has a brace.
func Compatible(prefix, key string) string {
	mustBePlain(prefix)
	if strings.IndexByte(key, '{') < 0 {
		return prefix + ":{" + key + "}"
	}
	return prefix + ":" + key
}

func mustBePlain(prefix string) {
	if hasBrace(prefix) {
		panic(fmt.Sprintf("slot: prefix %q has a brace", prefix))
	}
}

// hasBrace looks twice: strings.ContainsAny looks up one byte after the other.
func hasBrace(s string) bool {
	return strings.IndexByte(s, '{') >= 0 || strings.IndexByte(s, '}') >= 0
}
