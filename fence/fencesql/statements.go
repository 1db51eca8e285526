package fencesql

import "fmt"

// Statements are what a guard asks a database. They are for migrations, and for guards over drivers
// that are not those of database/sql: package fencepgx has them from here. Arguments are $1 and $2 in
// PostgreSQL, and ? elsewhere. The resource is bytes, and the token an integer of 64 bits.
type Statements struct {
	// Schema makes the table. It may be executed again.
	Schema []string

	// Claim raises the token of a resource, in a transaction of its own. It leaves an equal or a
	// greater one as it is. It takes the resource and the token; in MySQL the token twice.
	Claim string

	// In PostgreSQL, transactions that enter pass a claim that waits. So Try comes first: Claim that
	// fails with SQLSTATE 55P03 in place of waiting. Then Announce, in a transaction of its own, keeps
	// smaller tokens from entering, and Claim waits for those that have entered. All three take the
	// same. Announced takes the resource, and reads the token that was announced.
	Try, Announce, Announced string

	// Settle, in PostgreSQL, takes the resource and the token. It waits until all has ended that has
	// entered, and reads the token; no row if that is greater. Elsewhere Claim waits for all.
	Settle string

	// Current takes the resource, and reads its token in the transaction of the claim or after it.
	// No row is no token.
	Current string

	// Enter is first in a transaction that writes. It takes the resource, and in PostgreSQL also for
	// how many milliseconds the transaction may ask nothing. Its first column is the token, which
	// stays the greatest one until the transaction ends. Further columns are the guard's own. No row
	// means that nobody has claimed, or that a greater token was announced.
	Enter string

	// Verify answers each with one text, which is empty or says what is wrong.
	Verify []string
}

// Statements returns the statements for a table. Its name is as in Table; "" is redquorum_fence.
//
// Errors: one that matches ErrInput.
func (d Dialect) Statements(table string) (Statements, error) {
	if table == "" {
		table = usual
	}
	switch {
	case d < PostgreSQL || d > SQLite:
		return Statements{}, fmt.Errorf("%w: %v", ErrInput, d)
	case !name.MatchString(table):
		return Statements{}, fmt.Errorf("%w: table %.80q", ErrInput, table)
	}
	return d.statements(table), nil
}

// usual is the table, if nothing names another.
const usual = "redquorum_fence"
