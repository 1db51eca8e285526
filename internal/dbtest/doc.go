// Package dbtest starts the servers of storages for tests: processes of their own, in a folder of
// their own, with a socket and no port. They die with Close, and with this process if the system can
// do that.
//
// Start at Postgres, MariaDB, VersityGW and Etcd. The package imports no driver.
package dbtest
