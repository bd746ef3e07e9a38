// Package manifests reads what stands in deploy for Kubernetes and Compose with the types of those who will read it, strictly,
// and compares it with what the program knows: its commands, flags, variables and metrics. It has only tests.
package manifests
