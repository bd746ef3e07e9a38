package admin

// Outcomes are all outcomes of acts with their status of HTTP, for the test of the document.
func Outcomes() map[string]int {
	out := map[string]int{"dry_run": came{Outcome: "dry_run"}.status()}
	for outcome := range outcomeWords {
		out[outcome] = came{Outcome: outcome}.status()
	}
	return out
}
