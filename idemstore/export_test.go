package idemstore

// Planned is a statement that must be a look-up however large the tables are, with the settings it runs under.
type Planned struct {
	Name, SQL string
	Args      []any
}

// PlanForKeys are the planner's settings of the store's own transactions.
const PlanForKeys = `select ` + planForKeys

// SearchStatements are what a search runs.
func SearchStatements(q Search) []Planned {
	return []Planned{{"exact", searchExact, q.exact()}, {"prefix", searchPrefix, q.prefix()}}
}
