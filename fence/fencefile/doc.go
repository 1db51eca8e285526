// Package fencefile is a guard for files: it refuses writes of a holder that has been overtaken. It
// works on Linux and macOS.
//
// A folder has the tokens: for each resource, a file that is locked (flock) while somebody checks or
// writes, and a file with the greatest accepted token. So all processes of a machine that open the
// same folder share the guard. A write goes to a temporary file, to the disk, and then to its name:
//
//	flock lock · read token, refuse a smaller one · write and sync the new token · write · unlock
//
// The new token is on disk before the write begins. If the machine loses power in between, the
// storage knows the token and lacks the write, which is what a failed write is.
//
// The folder must be on a file system whose flock excludes everybody who writes. Do not use it over
// NFS or SMB: there a server that restarts may forget a lock while its holder still writes. Do not
// delete files of the folder. The guard would accept overtaken holders. A process that is killed
// while it writes leaves a temporary file, whose name begins with .fence-, and which may be deleted.
//
// Start at Open and Guard.WriteFile.
package fencefile
