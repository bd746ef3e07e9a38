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

// badRecords are records that cannot be imported, each with a part of the reason that is kept.
var badRecords = []struct{ record, reason string }{
	{`17`, "malformed"},
	{`null`, "malformed"},
	{`[]`, "malformed"},
	{`"text"`, "malformed"},
	{`{}`, "source_id: id is absent"},
	{`{"version":1,"name":"secret","email":""}`, "source_id: id is absent"},
	{`{"source_id":null,"version":1,"name":"secret","email":""}`, "source_id: id is null"},
	{`{"source_id":" ","version":1,"name":"secret","email":""}`, "source_id: id is only white space"},
	{`{"source_id":1.5,"version":1,"name":"secret","email":""}`, "source_id: id is a number with a fraction"},
	{`{"source_id":"x\u0000y","version":1,"name":"secret","email":""}`, "bad_key"},
	{`{"source_id":"` + strings.Repeat("x", 600) + `","version":1,"name":"secret","email":""}`, "limit 512"},
	{`{"source_id":"x","event_id":"` + strings.Repeat("x", 5000) + `","version":1,"name":"secret","email":""}`, "limit 512"},
	{`{"Source_ID":"x","version":1,"name":"secret","email":""}`, "malformed"},
	{`{"source_id":"x","name":"secret","email":""}`, "version and updated_at: both are absent"},
	{`{"source_id":"x","version":"7","name":"secret","email":""}`, "member version"},
	{`{"source_id":"x","version":1.5,"name":"secret","email":""}`, "member version"},
	{`{"source_id":"x","version":99999999999999999999,"name":"secret","email":""}`, "member version"},
	{`{"source_id":"x","version":1,"name":5,"email":""}`, "member name"},
	{`{"source_id":"x","version":1,"name":"secret","email":["a@example.com"]}`, "member email"},
	{`{"source_id":"x","version":1,"name":"secret\u0000","email":""}`, "name: holds a NUL"},
	{`{"source_id":"x","updated_at":"yesterday","name":"secret","email":""}`, "updated_at: not a time"},
	{`{"source_id":"x","updated_at":"2026-02-30T00:00:00Z","name":"secret","email":""}`, "updated_at: not a time"},
	{`{"source_id":"x","updated_at":5,"name":"secret","email":""}`, "member updated_at"},
	{`{"source_id":"0","updated_at":"2026-11-29T10:00:00Z","name":"secret","email":""}`, "cannot be compared"}, // 0 has only a version
	{`{"source_id":"x","version":1,"name":"Eve","email":""}`, "violates check constraint"},
}

// Bad records of every sort among good ones, old ones and repeats: each is set aside with its reason, all others are
// imported, and the counts add up.
func TestImportSetsBadRecordsAside(t *testing.T) {
	t.Parallel()
	b := newSyncBench(t)
	b.exec(`alter table shop.contacts add constraint not_eve check (name <> 'Eve')`)
	b.workOn(Import(ImportOptions{}))
	var records []string
	for i := range 60 {
		records = append(records, fmt.Sprintf(`{"source_id":"%d","version":2,"name":"n","email":""}`, i))
		if i < len(badRecords) {
			records = append(records, badRecords[i].record)
		}
	}
	long := strings.Repeat("x", 100_000)
	records = append(records,
		`{"source_id":"1","version":2,"name":"n","email":""}`, // the same id again with the same content
		`{"source_id":"1","version":1,"name":"n","email":""}`,
		`{"source_id":"1","version":2,"name":"other","email":""}`,
		`{"source_id":"1","version":3,"name":"`+long+`","email":""}`)
	b.publishTo("contacts.import", `{"batch_id":"b_1","records":[`+strings.Join(records, ",")+`]}`)
	b.settle()
	if got, want := b.says(`select status || ' ' || result from settle.tasks`),
		fmt.Sprintf(`finished {"batch_id":"b_1","records":%d,"imported":61,"stale":1,"duplicate":1,"ties":1,"set_aside":%d}`,
			len(records), len(badRecords)); got != want || len(records) != 61+1+1+1+len(badRecords) {
		t.Errorf("result of %d records: %s, want %s", len(records), got, want)
	}
	for i, bad := range badRecords {
		got := b.says(fmt.Sprintf(`select result || ': ' || reason from shop.import_progress where idx = %d`, 2*i+1))
		if !strings.HasPrefix(got, "set aside: ") || !strings.Contains(got, bad.reason) || strings.Contains(got, "secret") {
			t.Errorf("%.80s: %s, want %s", bad.record, got, bad.reason)
		}
	}
	if got := b.says(`select source_id from shop.contacts where name in ('secret', 'Eve') or source_id !~ '^[0-9]+$'`); got != "" {
		t.Errorf("bad records left contacts %s", got)
	}
	if got, want := b.says(`select count(*) || ' ' || max(length(name)) from shop.contacts`), "60 100000"; got != want {
		t.Errorf("contacts and longest name %s, want %s", got, want)
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
