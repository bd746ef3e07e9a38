package consumer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/settlemq/settle/idemstore"
)

// Version says which of two events of one entity is the newer one. Number and Time are optional, but one of them must
// be there. Two events with a number are compared by it, for clocks are set; else two with a time by that, to the last
// digit. Two events of which nothing can tell the order are a conflict, which a person decides.
type Version struct {
	Number *int64 // grows with each change; nil: the event has none
	Time   string // of the change: RFC 3339, with any number of digits after the second, at most 128 bytes; empty: none
}

const (
	maxEntity = 512 // bytes
	maxMoment = 128 // bytes
)

var (
	errNoVersion = errors.New("version: it has neither a number nor a time")
	errNoMoment  = errors.New("version: the time is not one of RFC 3339, or longer than 128 bytes")

	momentSyntax = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$`)
)

// stored is the version as it is kept and compared.
func (v Version) stored() (out idemstore.Version, err error) {
	out.Number = v.Number
	switch {
	case v.Time != "":
		out.Time, err = sortable(v.Time)
	case v.Number == nil:
		err = errNoVersion
	}
	return out, err
}

// sortable writes a time so that texts sort as the times do: in UTC, and without zeros at the end of the fraction, which
// may be longer than any clock type holds.
func sortable(moment string) (string, error) {
	parts := momentSyntax.FindStringSubmatch(moment)
	if parts == nil || len(moment) > maxMoment {
		return "", errNoMoment
	}
	t, err := time.Parse(time.RFC3339, parts[1]+parts[3])
	if err != nil || t.UTC().Year() < 0 || t.UTC().Year() > 9999 {
		return "", errNoMoment
	}
	return strings.TrimSuffix(t.UTC().Format("2006-01-02T15:04:05")+"."+strings.TrimRight(parts[2], "0"), "."), nil
}

// describeVersion is a version in words.
func describeVersion(v idemstore.Version) string {
	var parts []string
	if v.Number != nil {
		parts = append(parts, strconv.FormatInt(*v.Number, 10))
	}
	if v.Time != "" {
		parts = append(parts, v.Time+"Z")
	}
	return "version " + strings.Join(parts, " of ")
}

// entityOf asks the kind what a job is an event of. The id is empty where the kind has no order guard, or none for this
// job. Errors do not quote the id.
func (d *definition) entityOf(job any) (idemstore.Entity, error) {
	if d.entity == nil {
		return idemstore.Entity{}, nil
	}
	return contain(func() (e idemstore.Entity, err error) {
		id, v := d.entity(job)
		switch {
		case id == "":
			return e, nil
		case len(id) > maxEntity:
			return e, fmt.Errorf("entity: id of %d bytes, limit %d", len(id), maxEntity)
		case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
			return e, errors.New("entity: id is not valid UTF-8, or has a control character")
		}
		e.Kind, e.ID = d.name, id
		e.Version, err = v.stored()
		return e, err
	})
}

// checkEntity refuses a job that could never be put in order.
func (d *definition) checkEntity(job any) error {
	if _, err := d.entityOf(job); err != nil {
		return &refusalError{reason: idemstore.BadKey, detail: err.Error()}
	}
	return nil
}
