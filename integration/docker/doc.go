// Package docker breaks members that run in containers, the way operators break them: make test-docker.
package docker
