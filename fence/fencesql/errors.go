package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

var (
	// ErrInput is matched by the error for an argument that cannot work. Nothing was asked.
	ErrInput = errors.New("fencesql: bad input")

	// ErrNotClaimed is matched by the error of Enter for a token that nobody has claimed. The caller
	// rolls back, and claims. The error of Check matches it if the database has not kept the claim.
	ErrNotClaimed = errors.New("fencesql: token not claimed")

	// ErrEnded is matched by the error of Tx if the transaction that had entered was over before its
	// commit: the server or the function has ended it inside the function. Nothing is acknowledged. See
	// "What the function may not do" in the package comment for what is then written.
	ErrEnded = errors.New("fencesql: transaction ended inside the function")

	// ErrUnfit is matched by the error of Verify for a database whose guard protects nothing.
	ErrUnfit = errors.New("fencesql: database not fit")
)

// again reports whether the server says that the transaction did not happen and is to be repeated.
// Drivers have types of their own, which this package does not import: so it looks for what they
// have in common.
func (d Dialect) again(err error) bool {
	for _, e := range flat(err) {
		switch d {
		case PostgreSQL:
			switch sqlState(e) {
			case "40001", "40P01": // serialization failure, deadlock
				return true
			}
		case MySQL: // go-sql-driver has the field
			if n, ok := number(e, "Number"); ok {
				switch n {
				case 1213, 1205, 1020: // deadlock; a lock was waited for too long; the record has changed since the snapshot (MariaDB)
					return true
				}
			}
		case SQLite: // modernc and ncruces have the method, mattn has the field
			if n, ok := number(e, "Code"); ok {
				switch n & 0xff {
				case 5, 6: // busy, locked
					return true
				}
			}
		}
	}
	return false
}

// sqlState is the SQLSTATE of an error: drivers of PostgreSQL have the method.
func sqlState(err error) string {
	if s, ok := err.(interface{ SQLState() string }); ok {
		return s.SQLState()
	}
	return ""
}

// locked reports whether PostgreSQL says that a lock is not free.
func locked(err error) bool {
	return slices.ContainsFunc(flat(err), func(e error) bool { return sqlState(e) == "55P03" })
}

// ended makes an ErrEnded of an error that says that the transaction that has entered is over, and leaves others as
// they are.
func (d Dialect) ended(ctx context.Context, err error) error {
	what := ""
	var code int64
	for _, e := range flat(err) {
		if n, ok := number(e, "Number"); ok {
			code = n
		}
	}
	switch {
	case ctx.Err() != nil: // database/sql rolls back
		return err
	case errors.Is(err, sql.ErrTxDone):
		what = "the function has committed it or rolled it back"
	case d == MySQL && code == 1305: // SAVEPOINT does not exist
		what = "a deadlock, or a statement that commits; what came after that is rolled back"
	case d == SQLite && err != nil && strings.Contains(err.Error(), "no such savepoint"):
		what = "it is rolled back; what came after that is written, and no guard has judged it"
	default:
		return err
	}
	return fmt.Errorf("%w: %s: %w", ErrEnded, what, err)
}

// because adds the error of a context that has ended: database/sql and drivers tell that by errors of their own.
func because(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return errors.Join(ended, err)
	}
	return err
}

// flat lists an error and all that it wraps.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, flat(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, flat(one)...)
		}
	}
	return all
}

// number is an integer of an error: a method without arguments, or a field.
func number(err error, name string) (int64, bool) {
	v := reflect.ValueOf(err)
	var n reflect.Value
	if m := v.MethodByName(name); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return 0, false
		}
		n = m.Call(nil)[0]
	} else {
		for v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return 0, false
		}
		n = v.FieldByName(name)
	}
	switch {
	case !n.IsValid():
		return 0, false
	case n.CanInt():
		return n.Int(), true
	case n.CanUint():
		return int64(n.Uint()), true
	}
	return 0, false
}
