// Package e2e finds the story of a job in a real Jaeger: the program itself publishes and works, a worker is killed, calls
// time out, and then the query API has to know all of it.
//
// It is a module of its own because it needs bin/jaeger, which takes minutes to build: make jaeger-test builds it and
// runs the tests here.
package e2e
