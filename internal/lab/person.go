package lab

import (
	"context"
	"fmt"

	"github.com/settlemq/settle/idemstore"
)

// showToPerson puts together what a person finds who is called.
func showToPerson(ctx context.Context, p *play) error {
	t, err := p.row(ctx)
	if err != nil {
		return err
	}
	events, err := p.store.Events(ctx, t.TaskID)
	if err != nil {
		return err
	}
	p.person = []string{
		p.words.say("person.status." + string(t.Status)),
		p.words.say("person.task", "kind", t.Kind, "key", t.Key, "id", fmt.Sprint(t.TaskID)),
		p.words.say("person.cause", "cause", string(t.Cause)),
		p.words.say("person.key", "key", t.ProviderKey),
		p.words.say("person.error", "error", t.LastError),
	}
	for _, e := range events {
		p.person = append(p.person, p.words.say("person.event", "attempt", fmt.Sprint(e.Attempt), "change", change(e), "reason", e.Reason))
	}
	return nil
}

func change(e idemstore.Event) string {
	if e.OldStatus == e.NewStatus || e.OldStatus == "" {
		return string(e.NewStatus)
	}
	return string(e.OldStatus) + " → " + string(e.NewStatus)
}
