// Package fencing tests the guards of package fence on the storages themselves: database servers that
// it starts, and the drivers and clients of their users. No package of the library imports those.
package fencing
