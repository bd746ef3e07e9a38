// Package pooler runs the program behind a real PgBouncer. make pooler-test runs the tests here, which need its binary:
// install the distribution's package pgbouncer.
package pooler
