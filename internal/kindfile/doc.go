// Package kindfile reads kinds that are declared in a YAML file, and makes definitions for the engine of them: an HTTP
// call as the effect, without a line of Go. docs/kinds-file.md is the reference of the format.
//
//	file      a YAML document                                     Parse, Read
//	template  a text with placeholders: report-task-${job.task_id} text
//	tree      a JSON value with placeholders in its texts          tree
//	rule      which answers mean what                              rule
//
// Three things hold by construction. A value of a job cannot leave its place: a body is a tree that is encoded, never a
// text that is pasted together; path and query are escaped, and headers take no control characters. Two jobs of other
// members never share a key: keys have escaped separators. An answer that no rule names is unknown.
//
// The engine, the send gate and the rules for HTTP calls are those of kinds in Go.
package kindfile
