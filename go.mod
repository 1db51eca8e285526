module github.com/redquorum/redquorum

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/hashicorp/go-multierror v1.1.1
	github.com/mediocregopher/radix/v4 v4.1.4
	github.com/rogpeppe/go-internal v1.16.0
	github.com/sigurn/crc16 v0.0.0-20211026045750-20ab5afb07e3
	github.com/spf13/cobra v1.10.2
	github.com/spf13/pflag v1.0.9
	github.com/stretchr/testify v1.12.1
	github.com/yuin/gopher-lua v1.1.1
	go.uber.org/goleak v1.3.0
	go.yaml.in/yaml/v3 v3.0.5
	golang.org/x/sys v0.47.0
	golang.org/x/term v0.45.0
)

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/tilinna/clock v1.0.2 // indirect
	golang.org/x/tools v0.26.0 // indirect
)
