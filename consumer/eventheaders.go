package consumer

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// CloudEvents out. Every event that is published to EVENTS is a CloudEvent in binary mode: its body is the data, its
// headers are the attributes. Headers that readers of plain NATS rely on are there as well.

// eventAttributes describes a row of the outbox, which goes to events.<name>, as a CloudEvent. Published again, it is the
// same event: its id is the message id, its time that of the commit.
func (c Config) eventAttributes(h nats.Header, row idemstore.OutboxRow) {
	set := func(name, value string) {
		if value != "" {
			h[name] = []string{encodeAttribute(value)}
		}
	}
	set(attributePrefix+"specversion", specVersion)
	set(attributePrefix+"id", h.Get(headerMessageID))
	set(attributePrefix+"source", c.EventSource)
	set(attributePrefix+"type", c.EventTypePrefix+strings.TrimPrefix(row.Subject, eventSubjects))
	set(attributePrefix+"time", row.CreatedAt.UTC().Format(time.RFC3339Nano))
	set(attributePrefix+"subject", row.Key)
	set(attributePrefix+"datacontenttype", "application/json")
	// Two of the documented extensions: correlation, and distributed tracing.
	set(attributePrefix+"causationid", row.CausedBy)
	set(attributePrefix+headerTraceparent, h.Get(headerTraceparent))
}

// encodeAttribute writes a value as the binding wants it in a header: in printable ASCII without spaces, double quotes and
// percent signs.
func encodeAttribute(value string) string {
	plain := func(c byte) bool { return '!' <= c && c <= '~' && c != '"' && c != '%' }
	n := 0
	for n < len(value) && plain(value[n]) {
		n++
	}
	if n == len(value) {
		return value
	}
	var out strings.Builder
	for i := range len(value) {
		if plain(value[i]) {
			out.WriteByte(value[i])
			continue
		}
		fmt.Fprintf(&out, "%%%02X", value[i])
	}
	return out.String()
}

// checkEvents refuses what no CloudEvent can have.
func (c Config) checkEvents() (problems []error) {
	if u, err := url.Parse(c.EventSource); err != nil || u.String() == "" {
		problems = append(problems, fmt.Errorf("config: EventSource must be a URI reference, such as /payments or https://example.com/payments, not %q",
			c.EventSource))
	}
	if !isPrintable(c.EventTypePrefix) {
		problems = append(problems, fmt.Errorf("config: EventTypePrefix must be printable ASCII without spaces, such as com.example., not %q",
			c.EventTypePrefix))
	}
	return problems
}
