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
// A write to a partition of the table is refused, too, also of one that is made later (PostgreSQL 11 or
// later), and one through the table that it inherits. It does not see TRUNCATE of a partition, nor a table
// that inherits this one: give that a trigger of its own.
//
// It is no protection from somebody who wants to write: whoever may write the table may call what
// Enter calls. A table that has the trigger already gets the new one. Superusers and replication
// that set session_replication_role pass it. The trigger looks at the fence table that the search_path
// names when the statements are executed, whatever that of a writer is.
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
	names, entered := "", "redquorum_fence_"+table[strings.LastIndex(table, ".")+1:]
	if len(args) > 0 {
		names = " OR NOT string_to_array(regexp_replace(current_setting('redquorum.fence', true), ':[0-9]+', '', 'g'), ' ') && ARRAY[" + strings.Join(args, ", ") + "]"
	}
	function := fence + "_entered"
	call := " EXECUTE PROCEDURE " + function + "(" + strings.Join(args, ", ") + ")"
	return []string{
		// The function has the name of the table with its schema, whatever the search_path of a session is.
		"DO $do$ BEGIN EXECUTE format($f$CREATE OR REPLACE FUNCTION " + function + `() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	entry text;
	greater boolean := false;
BEGIN
	FOREACH entry IN ARRAY string_to_array(coalesce(current_setting('redquorum.fence', true), ''), ' ') LOOP
		IF TG_NARGS = 0 OR split_part(entry, ':', 1) = ANY (TG_ARGV) THEN
			PERFORM 1 FROM %1$s WHERE resource = decode(split_part(entry, ':', 1), 'hex') AND token = split_part(entry, ':', 2)::bigint FOR SHARE;
			IF FOUND THEN
				RETURN NULL;
			END IF;
			greater := true;
		END IF;
	END LOOP;
	IF greater THEN
		RAISE EXCEPTION 'redquorum: the lock of %% has a greater token', TG_RELID::regclass USING ERRCODE = '55000';
	END IF;
	RAISE EXCEPTION 'redquorum: this transaction has not entered the lock of %%', TG_RELID::regclass USING ERRCODE = '55000';
END $$$f$, (SELECT format('%I.%I', nspname, relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = '` + fence + `'::regclass)); END $do$`,
		"DROP TRIGGER IF EXISTS redquorum_fence ON " + table,
		"CREATE TRIGGER redquorum_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON " + table + " FOR EACH STATEMENT" + call,
		// Rows that a statement on another table reaches: on a partition, or on the parent that the table inherits.
		"DROP TRIGGER IF EXISTS " + entered + " ON " + table,
		"CREATE TRIGGER " + entered + " AFTER INSERT OR UPDATE OR DELETE ON " + table + " FOR EACH ROW" +
			" WHEN (coalesce(current_setting('redquorum.fence', true), '') = ''" + names + ")" + call,
	}, nil
}
