module github.com/redquorum/redquorum/fence/fencepgx

go 1.25.0

replace github.com/redquorum/redquorum => ../../

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/redquorum/redquorum v0.0.0-00010101000000-000000000000
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	golang.org/x/text v0.41.0 // indirect
)
