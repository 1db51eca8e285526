// Package resp encodes Redis commands, and says which had no answer. It has the few append functions that node, redlock and the
// test members share. Field reads a line of the answer to INFO.
package resp

import "strconv"

// AppendArray opens a command of n arguments.
func AppendArray(b []byte, n int) []byte {
	return AppendHead(b, '*', n)
}

// AppendHead adds what says how long something is: most is shorter than 100.
func AppendHead(b []byte, kind byte, n int) []byte {
	switch {
	case n < 10:
		return append(b, kind, '0'+byte(n), '\r', '\n')
	case n < 100:
		return append(b, kind, '0'+byte(n/10), '0'+byte(n%10), '\r', '\n')
	}
	b = strconv.AppendInt(append(b, kind), int64(n), 10)
	return append(b, '\r', '\n')
}

// AppendBulk adds one argument.
func AppendBulk[T string | []byte](b []byte, s T) []byte {
	b = append(AppendHead(b, '$', len(s)), s...)
	return append(b, '\r', '\n')
}

// AppendInt adds one argument, a decimal number.
func AppendInt(b []byte, n int64) []byte {
	var digits [20]byte
	return AppendBulk(b, strconv.AppendInt(digits[:0], n, 10))
}

// Command encodes a whole command.
func Command(args ...string) []byte {
	b := AppendArray(nil, len(args))
	for _, a := range args {
		b = AppendBulk(b, a)
	}
	return b
}
