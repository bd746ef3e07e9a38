package handlers

import (
	"fmt"
	"strings"
	"testing"
)

// A batch with everything that life brings: the records that can be imported are, the others say why not, and the result
// counts them.
func TestImportABatch(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.workOn(Import(ImportOptions{}))
	b.publishTo("contacts.import", `{"batch_id":"b_1","records":[
		{"source_id":"1","event_id":"a","version":2,"name":"Ada","email":"a@example.com"},
		{"source_id":"1","event_id":"b","version":1,"name":"Old","email":"a@example.com"},
		{"source_id":"1","event_id":"c","version":2,"name":"Ada","email":"a@example.com"},
		{"source_id":"1","event_id":"d","version":2,"name":"Eda","email":"a@example.com"},
		{"source_id":"2","name":"no version","email":""},
		{"source_id":{"x":1},"version":1,"name":"no id","email":""},
		17,
		{"source_id":"3","updated_at":"2026-11-29T10:00:00Z","name":"Grace","email":"g@example.com"}]}`)
	b.settle()
	if got, want := b.says(`select status || ' ' || result from settle.tasks where key = 'crm_batch_b_1'`),
		`finished {"batch_id":"b_1","records":8,"imported":2,"stale":1,"duplicate":1,"ties":1,"set_aside":3}`; got != want {
		t.Errorf("result %s, want %s", got, want)
	}
	if got, want := b.says(`select idx || ' ' || result from shop.import_progress where batch_id = 'b_1' order by idx`),
		"0 imported, 1 stale, 2 duplicate, 3 tie, 4 set aside, 5 set aside, 6 set aside, 7 imported"; got != want {
		t.Errorf("progress %s, want %s", got, want)
	}
	if got := b.says(`select reason from shop.import_progress where result = 'set aside' order by idx`); !strings.Contains(got, "refused (bad_key): version and updated_at: both are absent") {
		t.Errorf("reasons %s", got)
	}
	if got, want := b.says(`select source_id || ' ' || name from shop.contacts order by 1`), "1 "; !strings.HasPrefix(got, want) || !strings.Contains(got, "3 Grace") {
		t.Errorf("contacts %s", got)
	}
	b.publishTo("contacts.import", `{"batch_id":"b_2","records":[]}`)
	b.settle()
	if got := b.says(`select reason || ': ' || detail from settle.refusals`); got != "bad_key: bad_key: records: absent or empty" {
		t.Errorf("an empty batch: %s", got)
	}
}

// Two workers take over from each other in the middle of a batch; each record is imported once.
func TestImportGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	var records []string
	for i := range 100 {
		records = append(records, fmt.Sprintf(`{"source_id":"%d","event_id":"e","version":1,"name":"n","email":""}`, i))
	}
	// Record 80 waits for a row that the test holds: the worker is stopped there, and another goes on.
	b.exec(`insert into shop.contacts (source_id, version, name, email, checksum, task_id) values ('80', 0, 'n', '', '', 0)`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from shop.contacts where source_id = '80' for update`); err != nil {
		t.Fatal(err)
	}
	stop := b.workOn(Import(ImportOptions{}))
	b.publishTo("contacts.import", `{"batch_id":"b_1","records":[`+strings.Join(records, ",")+`]}`)
	b.eventually("80 records are imported", func() bool { return b.says(`select count(*)::text from settle.steps`) == "80" })
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-stopped
	b.workOn(Import(ImportOptions{}))
	b.settle()
	if got, want := b.says(`select result from settle.tasks`), `{"batch_id":"b_1","records":100,"imported":100,"stale":0,"duplicate":0,"ties":0,"set_aside":0}`; got != want {
		t.Errorf("result %s, want %s", got, want)
	}
	if got := b.says(`select count(*) || ' of ' || count(distinct idx) from shop.import_events`); got != "100 of 100" {
		t.Errorf("events %s", got)
	}
}
