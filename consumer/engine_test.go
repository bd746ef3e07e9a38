package consumer

import (
	"testing"

	"github.com/settlemq/settle/idemstore"
)

func TestOneJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	b.publish(`{"order":"1"}`)
	task := b.awaitStatus("pay_1", idemstore.Finished)
	b.awaitSettled()
	if task.Attempt != 1 || task.ExternalID != "pay_1" || string(task.Result) != `{"id":"pay_1"}` || task.Failures != 0 {
		t.Errorf("task %+v", task)
	}
	if w, e, lookups := b.pay.counts(); w != 1 || e != 1 || lookups != 0 {
		t.Errorf("W=%d E=%d look-ups=%d", w, e, lookups)
	}
	events, err := b.store.Events(t.Context(), task.TaskID)
	if err != nil || len(events) != 0 {
		t.Errorf("the happy path wrote %v (%v)", events, err)
	}
}
