package fencesql

import (
	"fmt"
	"regexp"
)

// Dialect is the kind of a server: its statements, and which of its errors say that a transaction is
// to be repeated.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = 1 + iota // 9.6 or later
	MySQL                         // 8, and MariaDB 10.5 or later; InnoDB
	SQLite                        // 3.35 or later
)

func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	case SQLite:
		return "SQLite"
	}
	return fmt.Sprintf("Dialect(%d)", uint8(d))
}

// An SQL name that needs no quotes, and may have a schema before it.
var name = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// ahead is the key of the row that announces a claim: a name that is longer than any.
const ahead = "$1::bytea || decode(repeat('00', 1025), 'hex')"

// milliseconds is a setting of PostgreSQL, or NULL if it is off.
func milliseconds(setting string) string {
	return "nullif((1000 * extract(epoch FROM current_setting('" + setting + "')::interval))::bigint, 0)"
}

// The comparisons are with <, so that a claim that is repeated writes nothing. GREATEST keeps the greater token; what a
// statement of MySQL has changed depends on the connection (clientFoundRows), so nothing is judged by that.
func (d Dialect) statements(table string) Statements {
	switch d {
	case PostgreSQL:
		// The condition turns on synchronous_commit until the end of the statement's own transaction. A token that is
		// there already is looked at first, because the row may be locked by its holder.
		claim := func(condition string) string {
			return "INSERT INTO " + table + " AS f SELECT $1::bytea, $2::bigint" +
				" WHERE CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')" +
				" THEN set_config('synchronous_commit', 'on', true) ELSE 'on' END <> '' AND " + condition +
				" AND NOT EXISTS (SELECT 1 FROM " + table + " WHERE resource = $1::bytea AND token >= $2::bigint)" +
				" ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token"
		}
		return Statements{
			Schema:    []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource bytea PRIMARY KEY, token bigint NOT NULL CHECK (token > 0)) WITH (fillfactor = 50)"},
			Claim:     claim("true"),
			Try:       claim("(SELECT count(*) FROM (SELECT 1 FROM " + table + " WHERE resource = $1::bytea AND token < $2::bigint FOR UPDATE NOWAIT) free) < 2"),
			Announce:  "INSERT INTO " + table + " AS f VALUES (" + ahead + ", $2::bigint) ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token",
			Announced: "SELECT token FROM " + table + " WHERE resource = " + ahead,
			Settle:    "SELECT token FROM " + table + " WHERE resource = $1::bytea AND token <= $2::bigint FOR UPDATE",
			Current:   "SELECT token FROM " + table + " WHERE resource = $1",
			// FOR SHARE and not FOR KEY SHARE, which an update passes. The trigger reads redquorum.fence: what this
			// transaction has entered, as names in hexadecimal digits with tokens.
			Enter: "SELECT token, set_config('redquorum.fence', ltrim(regexp_replace(coalesce(current_setting('redquorum.fence', true), '')," +
				" '(^| )' || encode($1::bytea, 'hex') || ':[0-9]+', '', 'g') || ' ' || encode($1::bytea, 'hex') || ':' || token), true)," +
				" set_config('idle_in_transaction_session_timeout', least($2::bigint, " + milliseconds("idle_in_transaction_session_timeout") + ")::text, true)" +
				" FROM " + table + " WHERE resource = $1::bytea AND token >= coalesce((SELECT token FROM " + table + " WHERE resource = " + ahead + "), 0) FOR SHARE",
			Verify: []string{
				"SELECT CASE WHEN current_setting('fsync') = 'off' THEN 'fsync is off: a crash of the machine forgets claims' ELSE '' END",
				"SELECT CASE WHEN pg_is_in_recovery() THEN 'this server is a standby' ELSE '' END",
				"SELECT coalesce(min(CASE WHEN relpersistence <> 'p' THEN 'the table is unlogged: a crash empties it' ELSE '' END), '') FROM pg_class WHERE oid = '" + table + "'::regclass",
			},
		}
	case MySQL:
		return Statements{
			Schema: []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB"},
			Claim:  "INSERT INTO " + table + " (resource, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)",
			// A locking read sees the latest commit at every level of isolation.
			Current: "SELECT token FROM " + table + " WHERE resource = ? FOR UPDATE",
			Enter:   "SELECT token, @@session.wait_timeout, @@session.autocommit FROM " + table + " WHERE resource = ? LOCK IN SHARE MODE",
			Verify: []string{
				"SELECT IF(@@global.innodb_flush_log_at_trx_commit = 1, '', 'innodb_flush_log_at_trx_commit is not 1: a crash forgets claims')",
				"SELECT IF(@@global.read_only = 0, '', 'this server is read-only')",
				"SELECT IF(@@session.sql_mode LIKE '%STRICT%', '', 'sql_mode is not strict: a name could be cut')",
			},
		}
	default:
		return Statements{
			Schema:  []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource BLOB NOT NULL PRIMARY KEY, token INTEGER NOT NULL CHECK (token > 0)) WITHOUT ROWID"},
			Claim:   "INSERT INTO " + table + " AS f (resource, token) VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token",
			Current: "SELECT token FROM " + table + " WHERE resource = ?",
			// A write, so that the transaction is the one writer from here on. One that has read only must be
			// repeated if another writes before it does.
			Enter: "UPDATE " + table + " SET token = token WHERE resource = ? RETURNING token",
			Verify: []string{
				"SELECT CASE WHEN synchronous < 2 THEN 'synchronous is below FULL: a loss of power forgets claims' ELSE '' END FROM pragma_synchronous",
			},
		}
	}
}
