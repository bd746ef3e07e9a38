package consumer

import (
	"bytes"
	"encoding/base64"
	"errors"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/settlemq/settle/idemstore"
)

// CloudEvents in. A job may travel as the data of a CloudEvent 1.0, in both modes of the NATS protocol binding
// (github.com/cloudevents/spec, cloudevents/bindings/nats-protocol-binding.md, 1.0.3):
//
//	binary      attributes in headers ce-specversion, ce-id, ce-source, ce-type …; the data is the body
//	structured  content-type: application/cloudevents+json; the body is the event, the data a member of it
//
// The official Go SDK sends structured events without any header, so a body without a content-type that has all four
// required attributes is one too. The binding has no batches.
//
// Only the data is the job: it is what is decoded, hashed and stored. Id and source are kept beside it as search terms.
// The subject says the kind; the type is for whoever maps types to kinds, see Bridge.

const (
	headerContentType = "content-type"

	attributePrefix = "ce-"
	specVersion     = "1.0"

	structuredJSON   = "application/cloudevents+json"
	structuredMedia  = "application/cloudevents"
	specVersionQuote = `"specversion"`
)

// required are the attributes that every event has.
var required = []string{"specversion", "id", "source", "type"}

// cloudEvent is an event whose required attributes were checked. Its data was not.
type cloudEvent struct {
	attributes map[string]string // by name, without the prefix
	body       []byte            // of the message
	data       *node             // structured: a member of body. nil: it has none
	structured bool
}

// errNoEvent: the message is no CloudEvent.
var errNoEvent = errors.New("no CloudEvent: it has neither ce-specversion nor the content-type application/cloudevents+json")

// openEvent reads the envelope of a message, or returns errNoEvent. All other errors are *refusalError.
func openEvent(h nats.Header, body []byte, maxBytes int) (*cloudEvent, error) {
	attributes, contentType, err := eventHeaders(h)
	if err != nil {
		return nil, err
	}
	switch media := mediaType(contentType); {
	case media == structuredJSON || media == structuredMedia:
		return structuredEvent(body, maxBytes)
	case strings.HasPrefix(media, structuredMedia):
		return nil, malformed("CloudEvent: neither batches nor event formats other than JSON (%s) are read", structuredJSON)
	case slices.ContainsFunc(required, func(name string) bool { return attributes[name] != "" }):
		return checked(&cloudEvent{attributes: attributes, body: body})
	case contentType == "" && bytes.Contains(body, []byte(specVersionQuote)):
		return bareEvent(body, maxBytes)
	}
	return nil, errNoEvent
}

// eventHeaders takes the attributes, and the content type, out of headers. Names may be written in any case.
func eventHeaders(h nats.Header) (attributes map[string]string, contentType string, err error) {
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		if strings.EqualFold(name, headerContentType) {
			contentType = values[0]
		}
		if len(name) <= len(attributePrefix) || !strings.EqualFold(name[:len(attributePrefix)], attributePrefix) {
			continue
		}
		if attributes == nil {
			attributes = map[string]string{}
		}
		name = strings.ToLower(name[len(attributePrefix):])
		if attributes[name] = decodeAttribute(values[0]); !utf8.ValidString(attributes[name]) {
			err = malformed("CloudEvent: a ce- header is not UTF-8")
		}
	}
	if attributes["datacontenttype"] == "" && contentType != "" && attributes != nil {
		attributes["datacontenttype"] = contentType
	}
	return attributes, contentType, err
}

// structuredEvent reads a body that says that it is an event.
func structuredEvent(body []byte, maxBytes int) (*cloudEvent, error) {
	doc, err := parse(body, maxBytes)
	if err != nil {
		return nil, inEvent("CloudEvent: ", err)
	}
	return checked(eventIn(doc))
}

// bareEvent reads a body that may be an event: one with all that an event needs.
func bareEvent(body []byte, maxBytes int) (*cloudEvent, error) {
	doc, err := parse(body, maxBytes)
	if err != nil {
		return nil, errNoEvent // whoever reads it as a job says what is wrong
	}
	e := eventIn(doc)
	if slices.ContainsFunc(required, func(name string) bool { return e.attributes[name] == "" }) {
		return nil, errNoEvent
	}
	return checked(e)
}

// eventIn is a document as an event. Attributes that are no text are extensions that nobody here reads.
func eventIn(doc *document) *cloudEvent {
	e := &cloudEvent{attributes: map[string]string{}, body: doc.body, structured: true}
	for i := range doc.root.children {
		switch m := &doc.root.children[i]; {
		case m.name == "data":
			e.data = m
		case m.kind == stringNode:
			e.attributes[m.name] = m.text
		}
	}
	return e
}

// checked refuses an event that lacks what every event has.
func checked(e *cloudEvent) (*cloudEvent, error) {
	for _, name := range required {
		if e.attributes[name] == "" {
			return nil, malformed("CloudEvent: %s is missing, empty or no text", name)
		}
	}
	if e.attributes["specversion"] != specVersion {
		return nil, malformed("CloudEvent: specversion is not %s", specVersion)
	}
	return e, nil
}

// job is the data: the body of a job, as it stands there.
func (e *cloudEvent) job() ([]byte, error) {
	if media := e.attributes["datacontenttype"]; media != "" && !isJSON(mediaType(media)) {
		return nil, malformed("CloudEvent: datacontenttype is not JSON")
	}
	encoded, based := e.attributes["data_base64"]
	switch {
	case !e.structured && len(e.body) == 0, e.structured && e.data == nil && !based:
		return nil, malformed("CloudEvent: no data")
	case !e.structured:
		return e.body, nil
	case e.data != nil && based:
		return nil, malformed("CloudEvent: both data and data_base64")
	case e.data != nil:
		return e.body[e.data.start:e.data.end:e.data.end], nil
	}
	data, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, malformed("CloudEvent: data_base64 is not base64")
	}
	return data, nil
}

// name is what names the event: its id is unique at its source.
func (e *cloudEvent) name() idemstore.EventName {
	return idemstore.EventName{ID: asStored(e.attributes["id"]), Source: asStored(e.attributes["source"])}
}

// asStored is an attribute as it is stored.
func asStored(attribute string) string {
	text, _ := cleanText([]byte(attribute), maxRef)
	return text
}

// readMessage decodes a message: its body is the job, or a CloudEvent with the job as its data. Errors are *refusalError.
func (d *definition) readMessage(h nats.Header, body []byte, maxBody int) (job, error) {
	e, err := openEvent(h, body, maxBody)
	if errors.Is(err, errNoEvent) {
		return d.read(body, maxBody)
	}
	if err != nil {
		return job{}, err
	}
	data, err := e.job()
	if err != nil {
		return job{}, err
	}
	j, err := d.read(data, maxBody)
	if err != nil {
		return job{}, inEvent("data of the CloudEvent: ", err)
	}
	j.event = e.name()
	j.refs = append(j.refs, idemstore.Ref{Name: "event_id", Value: j.event.ID}, idemstore.Ref{Name: "event_source", Value: j.event.Source})
	return j, nil
}

// forward is the event as a job of a kind, as it came. Headers that ask something of the server were for the first publish.
// The id is that of the event; with the body in it, an id that is used for something else gets through and is found.
func (e *cloudEvent) forward(kind string, h nats.Header) *nats.Msg {
	m := &nats.Msg{Subject: subject(kind), Data: e.body, Header: nats.Header{}}
	for name, values := range h {
		if !strings.HasPrefix(strings.ToLower(name), "nats-") {
			m.Header[name] = values
		}
	}
	if e.structured && headers(h).Get(headerContentType) == "" {
		m.Header.Set(headerContentType, structuredJSON)
	}
	if parent := knownTrace(e.attributes[headerTraceparent]); parent != "" && headers(h).Get(headerTraceparent) == "" {
		m.Header.Set(headerTraceparent, parent)
	}
	m.Header.Set(headerMessageID, "event-"+digest(e.attributes["source"], e.attributes["id"], kind, string(e.body)))
	return m
}

// inEvent says which part of a message a refusal is about: offsets count from the beginning of that.
func inEvent(part string, err error) error {
	var r *refusalError
	if errors.As(err, &r) {
		return &refusalError{r.reason, part + r.detail}
	}
	return err
}

// mediaType is the first part of a content type, in lower case; of one that cannot be read, all that stands before its
// parameters.
func mediaType(contentType string) string {
	if media, _, err := mime.ParseMediaType(contentType); err == nil {
		return media
	}
	media, _, _ := strings.Cut(contentType, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func isJSON(media string) bool {
	_, subtype, _ := strings.Cut(media, "/")
	return subtype == "json" || strings.HasSuffix(subtype, "+json")
}

// decodeAttribute undoes what the binding does to the value of a header: percent-encoding, and the double quotes of its
// older versions. A value that is not encoded stands for itself, because the official Go SDK encodes nothing.
func decodeAttribute(value string) string {
	if len(value) >= 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = unquote(value[1 : len(value)-1])
	}
	if decoded, err := url.PathUnescape(value); err == nil {
		return decoded
	}
	return value
}

// unquote drops the backslash before each escaped character.
func unquote(value string) string {
	var out strings.Builder
	for i := 0; i < len(value); i++ {
		if value[i] == '\\' && i+1 < len(value) {
			i++
		}
		out.WriteByte(value[i])
	}
	return out.String()
}
