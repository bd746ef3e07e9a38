package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
)

// nextObject is an act that is possible, as --json prints it.
type nextObject struct {
	Act     string `json:"act"`
	Command string `json:"command"`
	Effect  string `json:"effect"`
}

// nextOf are the acts that a task allows. refused are the messages whose content it could take, the newest first.
func nextOf(t idemstore.Task, options []consumer.AllowedAct, refused []idemstore.KeptRefusal) []nextObject {
	out := make([]nextObject, len(options))
	for i, o := range options {
		out[i] = nextObject{string(o.Act), commandOf(t, o.Act), o.Effect}
		if o.Act == consumer.ActResolve {
			out[i].Effect += "; --as failed, without id and result, if it did not happen"
		}
		if o.Act == consumer.ActSupersede && len(refused) > 0 {
			out[i].Command = strings.Replace(out[i].Command, "ID", strconv.FormatInt(refused[0].ID, 10), 1)
		}
	}
	return out
}

// commandOf is what to type. It names the task by its id: a key may hold anything.
func commandOf(t idemstore.Task, a consumer.Act) string {
	args := map[consumer.Act]string{
		consumer.ActAsk:       "",
		consumer.ActResolve:   " --as finished --external-id ID --result FILE --reason TEXT",
		consumer.ActSupersede: " --refusal ID --reason TEXT",
	}
	rest, own := args[a]
	if !own {
		rest = " --reason TEXT"
	}
	if t.Status == idemstore.NeedsReview && a != consumer.ActNote && a != consumer.ActAsk {
		// What was decided about this state is not to hit another one. Elsewhere attempts go on by themselves.
		rest += fmt.Sprintf(" --if-attempts %d", t.Attempt)
	}
	return fmt.Sprintf("settle tasks %s %d%s", a, t.TaskID, rest)
}

func printNext(w io.Writer, next []nextObject, stranger bool) error {
	fmt.Fprint(w, "\nWhat can be done\n")
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, n := range next {
		fmt.Fprintf(table, "%s\t%s\n", n.Command, n.Effect)
	}
	if err := table.Flush(); err != nil || !stranger {
		return err
	}
	_, err := fmt.Fprintln(w, "This build does not know the kind; the program that serves it can do more.")
	return err
}
