// Package settle carries the database schema, so that every command and test uses the one copy.
//
// The engine is in package consumer, the store in package idemstore, the program in cmd/settle.
package settle

import _ "embed"

//go:embed schema.sql
var schema string

// Schema is schema.sql: the whole schema as one idempotent script. idemstore.Migrate runs it, in one transaction under a lock
// that keeps several from running it at once.
func Schema() string { return schema }

// SchemaVersion is the version that Schema leaves in settle.schema_version.
const SchemaVersion = 1
