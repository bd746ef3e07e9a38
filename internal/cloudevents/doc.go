// Package cloudevents holds tests with the official CloudEvents SDK for Go as publisher and as consumer. They are in a module
// of their own, so that nobody who uses Settle depends on the SDK.
package cloudevents
