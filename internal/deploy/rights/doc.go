// Package rights gives real servers the rights that stand in deploy/roles.sql and deploy/nats, and sees that each process
// does its job with its own, and is refused beyond it. It has only tests.
package rights
