// Package dbtest starts the servers of storages for tests: processes of their own, in a folder of
// their own, with a socket, or with a free port if they have no sockets. They die with Close, and with
// this process if the system can do that.
//
// Start at Postgres, PgBouncer, MariaDB, MySQL, VersityGW, Etcd and DynamoDB. The package imports no driver.
package dbtest
