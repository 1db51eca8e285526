package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// CredentialsError says that there was nothing to authenticate a connection with: Config.Credentials
// failed or was late, or Config.PasswordFile could not be read. It wraps the cause.
type CredentialsError struct {
	Member string
	Err    error
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("no credentials for %s: %v", e.Member, e.Err)
}

func (e *CredentialsError) Unwrap() error { return e.Err }

// rotates reports whether the next dial may have other credentials than the last one.
func (c *Config) rotates() bool { return c.Credentials != nil || c.PasswordFile != "" }

// credentials are those of one dial, which ctx bounds.
func (c *Config) credentials(ctx context.Context, member string) (user, password string, err error) {
	switch {
	case c.Credentials != nil:
		user, password, err = c.Credentials(ctx)
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("they came too late: %w", ctx.Err())
		}
		if err == nil && user != "" && password == "" {
			err = errors.New("a user without a password")
		}
	case c.PasswordFile != "":
		user = c.Username
		password, err = readPassword(c.PasswordFile)
	default:
		return c.Username, string(c.Password), nil
	}
	if err != nil {
		return "", "", &CredentialsError{member, err}
	}
	return user, password, nil
}

// readPassword reads a password file. Its errors do not have the path.
func readPassword(path string) (string, error) {
	b, err := os.ReadFile(path)
	if p := (*os.PathError)(nil); errors.As(err, &p) {
		return "", fmt.Errorf("the password file cannot be read: %w", p.Err)
	}
	if err != nil {
		return "", errors.New("the password file cannot be read")
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" {
		return "", errors.New("the password file is empty")
	}
	return text, nil
}
