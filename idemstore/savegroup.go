package idemstore

import (
	"cmp"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// saveGroup is saves on their way into one transaction: those of the happy path by a statement of their own.
type saveGroup struct {
	saves         []Save
	plain, others []int // positions
}

func savesOf(saves []Save) *saveGroup {
	g := &saveGroup{saves: saves}
	for i := range saves {
		if saves[i].plain() {
			g.plain = append(g.plain, i)
		} else {
			g.others = append(g.others, i)
		}
	}
	// Rows are locked in the order of their ids.
	slices.SortFunc(g.plain, func(a, b int) int { return cmp.Compare(saves[a].TaskID, saves[b].TaskID) })
	return g
}

// plain reports whether saveFinal does for a save what save would.
func (s *Save) plain() bool {
	return s.Status.Final() && !s.Strict && s.Reason == "" && s.EvidenceID == "" && s.Cost == 0 && !s.AbsentNow && !s.ClearAbsent
}

func (g *saveGroup) queue(b *pgx.Batch) {
	if len(g.plain) > 0 {
		b.Queue(saveFinal, finalArgs(g.saves, g.plain)...)
	}
	if len(g.others) > 0 {
		b.Queue(save, saveColumnsOf(g.saves, g.others).args()...)
	}
}

// read reads the answers to what queue has queued, and gives them in the order of the saves.
func (g *saveGroup) read(r pgx.BatchResults) ([]Saved, error) {
	out := make([]Saved, len(g.saves))
	if len(g.plain) > 0 {
		if err := g.readPlain(r, out); err != nil {
			return nil, err
		}
	}
	if len(g.others) > 0 {
		rows, err := r.Query()
		if err != nil {
			return nil, err
		}
		saved, err := pgx.CollectRows(rows, scanSaved)
		if err != nil {
			return nil, err
		}
		for i, s := range saved {
			out[g.others[i]] = s
		}
	}
	return out, nil
}

// errUnfenced: a save statement answered for other rows than it was given, and did not raise.
var errUnfenced = errors.New("the fence let a save through that matched no row")

func (g *saveGroup) readPlain(r pgx.BatchResults, out []Saved) error {
	var (
		held     bool
		failures []int32
	)
	if err := r.QueryRow().Scan(&held, &failures); err != nil {
		return err
	}
	if len(failures) != len(g.plain) {
		return errUnfenced
	}
	for i, p := range g.plain {
		out[p] = Saved{Status: g.saves[p].Status, Failures: int(failures[i])}
	}
	return nil
}

// finalArgs are the arguments of saveFinal for the saves at some positions.
func finalArgs(saves []Save, positions []int) []any {
	n := len(positions)
	var (
		ids, retentions                   = make([]int64, n), make([]int64, n)
		attempts, providerStatuses        = make([]int32, n), make([]int32, n)
		tokens                            = make([]pgtype.UUID, n)
		altered                           = make([]bool, n)
		statuses, externalIDs, results    = make([]string, n), make([]string, n), make([]string, n)
		answers, lastErrors, errorClasses = make([]string, n), make([]string, n), make([]string, n)
	)
	for i, p := range positions {
		x := &saves[p]
		ids[i], attempts[i], tokens[i], statuses[i] = x.TaskID, int32(x.Attempt), tokenOf(x.Token), string(x.Status)
		externalIDs[i], results[i], altered[i] = clean(x.ExternalID), clean(string(x.Result)), x.ResultAltered
		providerStatuses[i], answers[i] = int32(x.ProviderStatus), clean(x.Answer)
		lastErrors[i], errorClasses[i] = clean(x.LastError), clean(x.ErrorClass)
		retentions[i] = x.Retention.Microseconds()
	}
	return []any{ids, attempts, tokens, statuses, unlessEmpty(externalIDs), unlessEmpty(results), unlessEmpty(altered),
		unlessEmpty(providerStatuses), unlessEmpty(answers), unlessEmpty(lastErrors), unlessEmpty(errorClasses), retentions}
}
