package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/settlemq/settle/consumer"
)

const (
	contactKind   = "contact.sync"
	contactPrefix = "crm_contact_"
)

// ContactOptions are the settings of the kind contact.sync.
type ContactOptions struct {
	// Policy overrides Config.Policy; zero fields do not.
	Policy consumer.Policy
}

// ContactJob is one event of the source about one of its contacts: the whole contact as it was then. Version or
// UpdatedAt must be there; they say which of two events is the newer one.
type ContactJob struct {
	SourceID  consumer.ID `json:"source_id"`            // the contact's id at the source; string or integer
	EventID   consumer.ID `json:"event_id,omitzero"`    // optional; string or integer
	Version   *int64      `json:"version,omitempty"`    // optional; grows with each change
	UpdatedAt string      `json:"updated_at,omitempty"` // optional; RFC 3339, with any number of digits after the second
	Name      string      `json:"name"`
	Email     string      `json:"email"`
}

// ContactResult is what is stored of an event, and replayed to every repeat.
type ContactResult struct {
	ContactID int64       `json:"contact_id"` // shop.contacts.id
	SourceID  string      `json:"source_id"`
	Result    EventResult `json:"result"`
	Changed   bool        `json:"changed"` // whether the contact now is as this event says
}

// EventResult says what became of an event.
type EventResult string

// The results of an event. Repeats of the same event are no events: the task answers them.
const (
	EventImported  EventResult = "imported"  // it was the newest so far
	EventStale     EventResult = "stale"     // the contact had a newer one already; skipped
	EventDuplicate EventResult = "duplicate" // another event had said the same; skipped
	EventTie       EventResult = "tie"       // another event of the same age says otherwise: the greater checksum wins
)

// Contact declares contact.sync: one event of a source about a contact becomes the contact's row, unless the row is
// newer. The key is source id and event; the guard is the row, so events of one contact may come in any order and on
// any number of workers.
func Contact(o ContactOptions) consumer.LocalKind[ContactJob, ContactResult] {
	return consumer.LocalKind[ContactJob, ContactResult]{
		Name: contactKind,
		Contract: consumer.Contract{
			Effect:  "none outside: the contact's row becomes what the event says, if nothing newer is there",
			Rows:    "shop.contacts (one row per source id) and shop.import_events (one row per event), in the transaction of the result",
			Success: "the event is recorded as imported, stale, duplicate or tie; the contact is as its newest event says",
			SecondRun: "returns the stored result with the local record id; an event that is older than the contact, or says the same, " +
				"changes nothing",
			StopRule: "a person decides about an event that cannot be compared: only one of event and contact has a version, and only one " +
				"an updated_at. A job that fails is rolled back and tried again until its budget or age is used up",
		},
		Policy: o.Policy,
		// The last two are no ids, but the key is made of them: what does not fit is a bad key.
		Content: consumer.Content{IDs: []string{"source_id", "event_id", "version", "updated_at"}},
		Key:     ContactJob.key,
		Refs:    func(j ContactJob) consumer.Refs { return consumer.Refs{"customer": textOf(j.SourceID)} },
		Apply:   applyContact,
	}
}

// key also refuses a job that no later attempt could do anything with.
func (j ContactJob) key() (string, error) {
	source, err := j.SourceID.Text()
	if err != nil {
		return "", fmt.Errorf("source_id: %w", err)
	}
	if _, err := j.edition(); err != nil {
		return "", err
	}
	for name, text := range map[string]string{"name": j.Name, "email": j.Email} {
		if strings.ContainsRune(text, 0) {
			return "", errors.New(name + ": holds a NUL")
		}
	}
	event, err := j.event()
	return contactPrefix + escaped(source) + "/" + event, err
}

// event is the part of the key that tells the events of a contact apart. An escaped id has no slash.
func (j ContactJob) event() (string, error) {
	switch {
	case j.EventID != consumer.ID{}:
		id, err := j.EventID.Text()
		if err != nil {
			return "", fmt.Errorf("event_id: %w", err)
		}
		return escaped(id), nil
	case j.Version != nil:
		return "/v" + strconv.FormatInt(*j.Version, 10), nil
	}
	return "/t" + j.UpdatedAt, nil
}

var keyEscapes = strings.NewReplacer("%", "%25", "/", "%2F")

func escaped(id string) string { return keyEscapes.Replace(id) }

// textOf is the text of an id that key has checked, or empty.
func textOf(id consumer.ID) string {
	text, err := id.Text()
	if err != nil {
		return ""
	}
	return text
}

// edition of the job, or why it has none.
func (j ContactJob) edition() (e edition, err error) {
	if j.Version == nil && j.UpdatedAt == "" {
		return e, errors.New("version and updated_at: both are absent")
	}
	e.version = j.Version
	if j.UpdatedAt != "" {
		e.moment, err = parseMoment(j.UpdatedAt)
	}
	return e, err
}

// checksum is over everything that is stored of the contact, so that the order of two events with the same edition
// does not matter: they agree, or the greater one wins.
func (j ContactJob) checksum(e edition) string {
	text, err := json.Marshal([]any{e.version, e.moment, j.Name, j.Email})
	if err != nil {
		panic("checksum of a contact: " + err.Error()) // all of it is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
