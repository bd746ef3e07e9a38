package consumer

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// binaryEvent is a whole set of headers, with changes: pairs of name and value, where an empty value removes the header.
func binaryEvent(changes ...string) nats.Header {
	h := nats.Header{"ce-specversion": {"1.0"}, "ce-id": {"evt-1"}, "ce-source": {"/shop"}, "ce-type": {"com.acme.placed"}}
	for i := 0; i < len(changes); i += 2 {
		delete(h, changes[i])
		if changes[i+1] != "" {
			h[changes[i]] = []string{changes[i+1]}
		}
	}
	return h
}

// structured is the header of a structured event.
var structuredHeader = nats.Header{"Content-Type": {"application/cloudevents+json; charset=UTF-8"}}

// envelope is a structured event with the members given before the required ones.
func envelope(members string) string {
	return `{` + members + `"specversion":"1.0","id":"evt-1","source":"/shop","type":"com.acme.placed"}`
}

const inEnvelope = `"data":{"order":"1"},`

// Each way in which a job may travel, and the same job each time.
func TestReadCloudEvents(t *testing.T) {
	t.Parallel()
	plain := nats.Header{}
	based := `"data_base64":"eyJvcmRlciI6IjEifQ==",`
	for name, c := range map[string]struct {
		header nats.Header
		body   string
		id     string
	}{
		"plain job":                       {plain, plainJob, ""},
		"plain job that names specs":      {plain, `{"order":"1","note":"specversion"}`, ""},
		"plain job with other headers":    {nats.Header{"ce": {"x"}, "ce-": {"x"}, "ce-note": {"x"}, "content-type": {"application/json"}}, plainJob, ""},
		"binary":                          {binaryEvent(), plainJob, "evt-1"},
		"binary, names in any case":       {nats.Header{"Ce-SpecVersion": {"1.0"}, "CE-ID": {"evt-1"}, "ce-Source": {"/"}, "Ce-Type": {"t"}}, plainJob, "evt-1"},
		"binary, datacontenttype":         {binaryEvent("ce-datacontenttype", "application/json; charset=utf-8"), plainJob, "evt-1"},
		"binary, content-type":            {binaryEvent("Content-Type", "application/vnd.acme.order+json"), plainJob, "evt-1"},
		"binary, encoded":                 {binaryEvent("ce-id", "a%20%E2%82%AC"), plainJob, "a €"},
		"binary, quoted":                  {binaryEvent("ce-id", `"a \"b\""`), plainJob, `a "b"`},
		"binary, sent without encoding":   {binaryEvent("ce-id", "50% of it"), plainJob, "50% of it"},
		"structured":                      {structuredHeader, envelope(inEnvelope), "evt-1"},
		"structured, data at the end":     {structuredHeader, `{"specversion":"1.0","type":"t","source":"/","id":"2","ok":true,"n":3,"data":{"order":"1"}}`, "2"},
		"structured, base64":              {structuredHeader, envelope(based), "evt-1"},
		"structured, application only":    {nats.Header{"content-type": {"application/cloudevents"}}, envelope(inEnvelope), "evt-1"},
		"structured, beside ce-":          {nats.Header{"content-type": {structuredJSON}, "ce-id": {"other"}}, envelope(inEnvelope), "evt-1"},
		"structured, without any header":  {nil, envelope(inEnvelope), "evt-1"},
		"structured, datacontenttype":     {structuredHeader, envelope(`"datacontenttype":"application/json",` + inEnvelope), "evt-1"},
		"a job with some of its members":  {nil, `{"specversion":"1.0","id":"5","order":"1"}`, ""},
		"a job with all but the envelope": {nats.Header{"content-type": {"application/json"}}, envelope(`"order":"1",`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := payDefinition(t)
			j, err := d.readMessage(c.header, []byte(c.body), 0)
			if err != nil || j.key != "pay_1" || j.event.ID != c.id {
				t.Fatalf("key %q, event %+v: %v", j.key, j.event, err)
			}
			if c.id == "" {
				return
			}
			want, err := d.read([]byte(plainJob), 0)
			if err != nil || !bytes.Equal(j.hash, want.hash) || !bytes.Equal(j.payload, want.payload) {
				t.Errorf("payload %s, not the same job (%v)", j.payload, err)
			}
			refs := []idemstore.Ref{{Name: "event_id", Value: c.id}, {Name: "event_source", Value: j.event.Source}}
			if len(j.refs) != 2 || j.refs[0] != refs[0] || j.refs[1] != refs[1] {
				t.Errorf("search terms %v, want %v", j.refs, refs)
			}
		})
	}
}

func payDefinition(t *testing.T) *definition {
	t.Helper()
	d, err := new(payProvider).kind().define()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A refusal says what is wrong with the event, and never quotes it.
func TestRefusedCloudEvents(t *testing.T) {
	t.Parallel()
	header := func(name, value string) nats.Header { return nats.Header{name: {value}} }
	for name, c := range map[string]struct {
		header nats.Header
		body   string
		want   string
	}{
		"no type":                {binaryEvent("ce-type", ""), plainJob, "CloudEvent: type is missing, empty or no text"},
		"no id":                  {binaryEvent("ce-id", ""), plainJob, "CloudEvent: id is missing"},
		"no source":              {binaryEvent("ce-source", ""), plainJob, "CloudEvent: source is missing"},
		"no specversion":         {binaryEvent("ce-specversion", ""), plainJob, "CloudEvent: specversion is missing"},
		"only an id":             {header("ce-id", "1"), plainJob, "CloudEvent: specversion is missing"},
		"version 0.3":            {binaryEvent("ce-specversion", "0.3"), plainJob, "CloudEvent: specversion is not 1.0"},
		"other data":             {binaryEvent("ce-datacontenttype", "text/xml"), plainJob, "CloudEvent: datacontenttype is not JSON"},
		"other data, header":     {binaryEvent("content-type", "image/png"), plainJob, "CloudEvent: datacontenttype is not JSON"},
		"no data":                {binaryEvent(), "", "CloudEvent: no data"},
		"bad bytes":              {binaryEvent("ce-id", "%C0%A0"), plainJob, "CloudEvent: a ce- header is not UTF-8"},
		"data is no object":      {binaryEvent(), "[]", "data of the CloudEvent: not a JSON object at offset 0"},
		"batch":                  {header("content-type", "application/cloudevents-batch+json"), `[` + envelope(inEnvelope) + `]`, "CloudEvent: neither batches nor"},
		"protobuf":               {header("content-type", "application/cloudevents+protobuf"), "x", "CloudEvent: neither batches nor"},
		"structured array":       {structuredHeader, `[]`, "CloudEvent: not a JSON object at offset 0"},
		"structured twice":       {structuredHeader, envelope(`"id":"2",` + inEnvelope), "CloudEvent: repeated member"},
		"structured no type":     {structuredHeader, `{"specversion":"1.0","id":"1","source":"/","data":{}}`, "CloudEvent: type is missing"},
		"structured number id":   {structuredHeader, `{"specversion":"1.0","id":1,"source":"/","type":"t","data":{}}`, "CloudEvent: id is missing, empty or no text"},
		"structured 0.3":         {structuredHeader, strings.Replace(envelope(inEnvelope), "1.0", "0.3", 1), "CloudEvent: specversion is not 1.0"},
		"bare 0.3":               {nil, strings.Replace(envelope(inEnvelope), "1.0", "0.3", 1), "CloudEvent: specversion is not 1.0"},
		"structured no data":     {structuredHeader, envelope(""), "CloudEvent: no data"},
		"structured null":        {structuredHeader, envelope(`"data":null,`), "data of the CloudEvent: not a JSON object at offset 0"},
		"structured text":        {structuredHeader, envelope(`"data":"{\"order\":\"1\"}",`), "data of the CloudEvent: not a JSON object at offset 0"},
		"structured xml":         {structuredHeader, envelope(`"datacontenttype":"text/xml","data":"<a/>",`), "CloudEvent: datacontenttype is not JSON"},
		"structured both":        {structuredHeader, envelope(inEnvelope + `"data_base64":"e30=",`), "CloudEvent: both data and data_base64"},
		"structured bad base64":  {structuredHeader, envelope(`"data_base64":"e30",`), "CloudEvent: data_base64 is not base64"},
		"structured base64 junk": {structuredHeader, envelope(`"data_base64":"AAEC",`), "data of the CloudEvent: not a JSON object at offset 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := payDefinition(t).readMessage(c.header, []byte(c.body), 0)
			var r *refusalError
			if !errors.As(err, &r) || r.reason != idemstore.Malformed || !strings.HasPrefix(r.detail, c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

// The reason of the data counts, also inside an envelope, and so does the limit.
func TestRefusedDataOfCloudEvents(t *testing.T) {
	t.Parallel()
	d := payDefinition(t)
	for want, body := range map[idemstore.Reason]string{
		idemstore.BadKey:   envelope(`"data":{"order":null},`),
		idemstore.TooLarge: envelope(`"data":{"order":"1","note":"` + strings.Repeat("x", 200) + `"},`),
	} {
		_, err := d.readMessage(structuredHeader, []byte(body), 200)
		if refusalReason(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A publisher may wrap a job: it travels as it is, under the id of the job itself, and is called as the job is.
func TestPublishACloudEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.run()
	if out := b.sent(envelope(inEnvelope), structuredHeader); out.Outcome != PublishStored || out.Key != "pay_1" {
		t.Fatalf("published: %+v", out)
	}
	if out := b.sent(plainJob, nil); out.Outcome != PublishDuplicate {
		t.Errorf("the same job without an envelope: %+v", out)
	}
	var refused *InvalidJobError
	if _, err := PublishRaw(t.Context(), b.js, b.kind, []byte(envelope("")), structuredHeader); !errors.As(err, &refused) {
		t.Errorf("an event without data: %v", err)
	}
	c, err := StartCall(t.Context(), b.pool, b.js, b.kind, []byte(`{"order":"2"}`), binaryEvent("ce-id", "evt-2"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Wait(t.Context())
	if err != nil || a.Status != idemstore.Finished || a.Key != "pay_2" {
		t.Errorf("called: %+v (%v)", a, err)
	}
	if task := b.awaitStatus("pay_1", idemstore.Finished); string(task.Payload) != plainJob || task.Event.ID != "evt-1" {
		t.Errorf("payload %s, event %+v", task.Payload, task.Event)
	}
}

// The trace of the publisher is found in the extension as well.
func TestTraceOfACloudEvent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.trace()
	b.run()
	b.sent(plainJob, binaryEvent("ce-traceparent", publishersTrace))
	b.sent(`{"order":"2"}`, binaryEvent("ce-traceparent", "none", "traceparent", publishersTrace))
	for _, key := range []string{"pay_1", "pay_2"} {
		if task := b.awaitStatus(key, idemstore.Finished); traceOf(task.LastTrace) != traceOf(publishersTrace) {
			t.Errorf("%s: trace %s", key, task.LastTrace)
		}
	}
}

// What an attribute is written as is read again as the same, and is what a header may hold.
func FuzzEventAttribute(f *testing.F) {
	for _, s := range []string{"", "plain", "a b", `"quoted"`, "100%", "%41", "€ 😀", "\x00\r\n\x7f", `\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		written := encodeAttribute(s)
		if !isPrintable(written) {
			t.Errorf("%q is written as %q", s, written)
		}
		if read := decodeAttribute(written); read != s {
			t.Errorf("%q is written as %q and read as %q", s, written, read)
		}
	})
}

// Reading never panics, and what comes out of it is a whole event or a refusal.
func FuzzOpenEvent(f *testing.F) {
	f.Add("application/cloudevents+json", "1.0", envelope(inEnvelope))
	f.Add("", "", envelope(inEnvelope))
	f.Add("application/json", "1.0", plainJob)
	f.Fuzz(func(t *testing.T, contentType, version, body string) {
		e, err := openEvent(binaryEvent("content-type", contentType, "ce-specversion", version), []byte(body), 0)
		var r *refusalError
		switch {
		case err == nil:
			if e.attributes["id"] == "" || e.attributes["type"] == "" || e.attributes["source"] == "" {
				t.Errorf("an event without a name: %v", e.attributes)
			}
			if data, err := e.job(); err == nil && len(data) == 0 {
				t.Error("a job without a body")
			}
		case !errors.Is(err, errNoEvent) && !errors.As(err, &r):
			t.Errorf("%v is no refusal", err)
		}
	})
}
