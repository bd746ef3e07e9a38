// Package demo runs the main job of Settle on real parts and proves what it claims.
//
// It starts a PostgreSQL, a JetStream, the stand-in provider and two worker processes; publishes charges, reports and
// contact events with the duplicates, and the disorder, that life brings; kills workers between the provider's success
// and the save; lets calls time out after the effect; freezes a worker past its lease. Then it reads the provider's own
// tables, the local rows and the events: one effect for each key, nothing lost, nothing pending, one event and one receipt
// for each charge, each contact as its newest event says.
//
// A sabotage runs the same story with one rule broken, to show that the proof can fail.
package demo
