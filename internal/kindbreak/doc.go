// Package kindbreak runs a kind of a file against a provider that is there, a sandbox, while everything goes wrong: real
// worker processes are killed before and after the effect, answers are lost, look-ups fail, jobs come twice. It stands between
// the workers and the provider, and counts effects by the ids that the provider answers with.
package kindbreak
