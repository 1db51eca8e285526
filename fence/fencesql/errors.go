package fencesql

import (
	"context"
	"errors"
	"reflect"
)

var (
	// ErrInput is matched by the error for an argument that cannot work. Nothing was asked.
	ErrInput = errors.New("fencesql: bad input")

	// ErrNotClaimed is matched by the error of Enter for a token that nobody has claimed. The caller
	// rolls back, and claims. The error of Check matches it if the database has not kept the claim.
	ErrNotClaimed = errors.New("fencesql: token not claimed")

	// ErrUnfit is matched by the error of Verify for a database whose guard protects nothing.
	ErrUnfit = errors.New("fencesql: database not fit")
)

// again reports whether the server says that the transaction did not happen and is to be repeated.
// Drivers have types of their own, which this package does not import: so it looks for what they
// have in common.
func (d Dialect) again(err error) bool {
	for _, e := range flat(err) {
		switch d {
		case PostgreSQL: // pgx and lib/pq have the method
			if s, ok := e.(interface{ SQLState() string }); ok {
				switch s.SQLState() {
				case "40001", "40P01": // serialization failure, deadlock
					return true
				}
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
