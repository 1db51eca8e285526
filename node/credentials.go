package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// CredentialsError says that there was nothing to authenticate a connection with: Config.Credentials
// failed, was late or returned no password, or Config.PasswordFile could not be read. It wraps the
// cause.
type CredentialsError struct {
	Member string
	err    error
}

func (e *CredentialsError) Error() string {
	return fmt.Sprintf("no credentials for %s: %v", e.Member, e.err)
}

func (e *CredentialsError) Unwrap() error { return e.err }

// credentials are those of one dial, which ctx bounds.
func (c *Config) credentials(ctx context.Context, member string) (user, password string, err error) {
	switch {
	case c.Credentials != nil:
		user, password, err = c.provided(ctx)
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
	text := firstLine(b)
	if text == "" {
		return "", errors.New("the password file is empty")
	}
	return text, nil
}

// firstLine is the password in a file.
func firstLine(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimRight(line, "\r")
}

type credentials struct {
	user, password string
	err            error
}

// provided asks Config.Credentials.
func (c *Config) provided(ctx context.Context) (user, password string, err error) {
	began := time.Now()
	got, returned := within(ctx, c.grace(), func() (r credentials) {
		r.user, r.password, r.err = c.Credentials(ctx)
		return r
	}, func(credentials) {})
	switch {
	case !returned:
		err = stuck(ctx)
	case got.err != nil:
		err = got.err
	case ctx.Err() != nil:
		err = fmt.Errorf("they came too late: %w", ctx.Err())
	case got.password == "": // the default user might do without one, with other permissions
		err = errors.New("it returned no password")
	default:
		return got.user, got.password, nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w (after %v)", err, time.Since(began).Round(time.Millisecond))
	}
	return "", "", fmt.Errorf("Config.Credentials: %w", err)
}
