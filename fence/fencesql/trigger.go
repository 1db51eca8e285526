package fencesql

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Trigger returns the statements that let PostgreSQL refuse each INSERT, UPDATE, DELETE and TRUNCATE
// on a table whose transaction has not entered, also those of other programs. With resources, the
// transaction must have entered one of these; without, any. The error has the SQLSTATE 55000 and the
// word redquorum.
//
// It is no protection from somebody who wants to write: whoever may write the table may call what
// Enter calls. A table that has the trigger already gets the new one. Superusers and replication
// that set session_replication_role pass it.
//
// Errors: one that matches ErrInput, also for other dialects.
func (g *Guard) Trigger(table string, resources ...string) ([]string, error) {
	return g.dialect.Trigger(g.table, table, resources...)
}

// Trigger is Guard.Trigger for those who have no *sql.DB. fence is the table of the guard; "" is
// redquorum_fence.
func (d Dialect) Trigger(fence, table string, resources ...string) ([]string, error) {
	if d != PostgreSQL {
		return nil, fmt.Errorf("%w: no trigger for %v", ErrInput, d)
	}
	if fence == "" {
		fence = usual
	}
	for _, t := range []string{fence, table} {
		if !name.MatchString(t) {
			return nil, fmt.Errorf("%w: table %.80q", ErrInput, t)
		}
	}
	var args []string
	for _, r := range resources {
		if len(r) > MaxResource {
			return nil, fmt.Errorf("%w: a name of %d bytes, not up to %d", ErrInput, len(r), MaxResource)
		}
		args = append(args, "'"+hex.EncodeToString([]byte(r))+"'")
	}
	function := fence + "_entered"
	return []string{
		"CREATE OR REPLACE FUNCTION " + function + `() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	entry text := coalesce(current_setting('redquorum.fence', true), '');
	about text := split_part(entry, ':', 1);
BEGIN
	IF entry = '' OR (TG_NARGS > 0 AND NOT about = ANY (TG_ARGV)) THEN
		RAISE EXCEPTION 'redquorum: this transaction has not entered the lock of %', TG_RELID::regclass USING ERRCODE = '55000';
	END IF;
	PERFORM 1 FROM ` + fence + ` WHERE resource = decode(about, 'hex') AND token = split_part(entry, ':', 2)::bigint FOR SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'redquorum: the lock of % has a greater token', TG_RELID::regclass USING ERRCODE = '55000';
	END IF;
	RETURN NULL;
END $$`,
		"DROP TRIGGER IF EXISTS redquorum_fence ON " + table,
		"CREATE TRIGGER redquorum_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON " + table +
			" FOR EACH STATEMENT EXECUTE FUNCTION " + function + "(" + strings.Join(args, ", ") + ")",
	}, nil
}
