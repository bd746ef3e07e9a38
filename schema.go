// Package settle carries the database schema, so that every command and test uses the one copy.
//
// The engine is in package consumer, the store in package idemstore, the program in cmd/settle.
package settle

import _ "embed"

// Schema is schema.sql: the whole schema as one idempotent script.
//
//go:embed schema.sql
var Schema string

// SchemaVersion is the version that Schema leaves in settle.schema_version.
const SchemaVersion = 1
