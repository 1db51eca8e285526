//go:build !linux && !darwin

package fencefile

import (
	"errors"
	"os"
)

const supported = false

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
