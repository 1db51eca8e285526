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

// statements are those of a dialect for one table.
type statements struct {
	schema []string

	// claim raises the token, and leaves an equal or a greater one as it is. It waits for what has entered under a
	// smaller one.
	claim string
	// try is claim, and fails at once if it has to wait. Then announce keeps smaller tokens from entering, and claim comes
	// after the transactions that have entered already. Both are for PostgreSQL, where a share lock passes a claim that
	// waits. InnoDB and SQLite let nobody pass.
	try, announce string
	// announced reads the greatest token that was announced.
	announced string
	// settle reads the token if it is not greater, and waits for all that has entered. In PostgreSQL alone: elsewhere a
	// claim waits whatever the token is.
	settle string
	// current reads the token after the claim.
	current string
	// enter locks the row against claims, and answers with its token. In MySQL further columns have the
	// session's wait_timeout in seconds, and its autocommit.
	enter string
	// verify answers with words: what is wrong.
	verify []string
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
func (d Dialect) statements(table string) statements {
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
		return statements{
			schema:    []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource bytea PRIMARY KEY, token bigint NOT NULL CHECK (token > 0)) WITH (fillfactor = 50)"},
			claim:     claim("true"),
			try:       claim("(SELECT count(*) FROM (SELECT 1 FROM " + table + " WHERE resource = $1::bytea AND token < $2::bigint FOR UPDATE NOWAIT) free) < 2"),
			announce:  "INSERT INTO " + table + " AS f VALUES (" + ahead + ", $2::bigint) ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token",
			announced: "SELECT token FROM " + table + " WHERE resource = " + ahead,
			settle:    "SELECT token FROM " + table + " WHERE resource = $1::bytea AND token <= $2::bigint FOR UPDATE",
			current:   "SELECT token FROM " + table + " WHERE resource = $1",
			// FOR SHARE and not FOR KEY SHARE, which an update passes. The trigger reads redquorum.fence: what this
			// transaction has entered, as names in hexadecimal digits with tokens.
			enter: "SELECT token, set_config('redquorum.fence', ltrim(regexp_replace(coalesce(current_setting('redquorum.fence', true), '')," +
				" '(^| )' || encode($1::bytea, 'hex') || ':[0-9]+', '', 'g') || ' ' || encode($1::bytea, 'hex') || ':' || token), true)," +
				" set_config('idle_in_transaction_session_timeout', least($2::bigint, " + milliseconds("idle_in_transaction_session_timeout") + ")::text, true)" +
				" FROM " + table + " WHERE resource = $1::bytea AND token >= coalesce((SELECT token FROM " + table + " WHERE resource = " + ahead + "), 0) FOR SHARE",
			verify: []string{
				"SELECT CASE WHEN current_setting('fsync') = 'off' THEN 'fsync is off: a crash of the machine forgets claims' ELSE '' END",
				"SELECT CASE WHEN pg_is_in_recovery() THEN 'this server is a standby' ELSE '' END",
				"SELECT coalesce(min(CASE WHEN relpersistence <> 'p' THEN 'the table is unlogged: a crash empties it' ELSE '' END), '') FROM pg_class WHERE oid = '" + table + "'::regclass",
			},
		}
	case MySQL:
		return statements{
			schema: []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource VARBINARY(1024) NOT NULL PRIMARY KEY, token BIGINT NOT NULL) ENGINE=InnoDB"},
			claim:  "INSERT INTO " + table + " (resource, token) VALUES (?, ?) ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)",
			// A locking read sees the latest commit at every level of isolation.
			current: "SELECT token FROM " + table + " WHERE resource = ? FOR UPDATE",
			enter:   "SELECT token, @@session.wait_timeout, @@session.autocommit FROM " + table + " WHERE resource = ? LOCK IN SHARE MODE",
			verify: []string{
				"SELECT IF(@@global.innodb_flush_log_at_trx_commit = 1, '', 'innodb_flush_log_at_trx_commit is not 1: a crash forgets claims')",
				"SELECT IF(@@global.read_only = 0, '', 'this server is read-only')",
				"SELECT IF(@@session.sql_mode LIKE '%STRICT%', '', 'sql_mode is not strict: a name could be cut')",
			},
		}
	default:
		return statements{
			schema:  []string{"CREATE TABLE IF NOT EXISTS " + table + " (resource BLOB NOT NULL PRIMARY KEY, token INTEGER NOT NULL CHECK (token > 0)) WITHOUT ROWID"},
			claim:   "INSERT INTO " + table + " AS f (resource, token) VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token < excluded.token",
			current: "SELECT token FROM " + table + " WHERE resource = ?",
			// A write, so that the transaction is the one writer from here on. One that has read only must be
			// repeated if another writes before it does.
			enter: "UPDATE " + table + " SET token = token WHERE resource = ? RETURNING token",
			verify: []string{
				"SELECT CASE WHEN synchronous < 2 THEN 'synchronous is below FULL: a loss of power forgets claims' ELSE '' END FROM pragma_synchronous",
			},
		}
	}
}
