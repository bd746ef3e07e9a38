package provider

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// name is one name of a fault as header and JSON spell it. Both go through this table, so they cannot differ.
type name struct {
	text string
	flag bool // may stand alone in a header
	set  func(*Fault, string) error
	get  func(*Fault) (string, bool) // false: not set
}

var names = []name{
	textName("key", func(f *Fault) *string { return &f.Key }),
	textName("method", func(f *Fault) *string { return &f.Method }),
	textName("path", func(f *Fault) *string { return &f.Path }),
	{text: "count", set: setCount, get: getCount},
	flagName("ignore-keys", func(f *Fault) *bool { return &f.IgnoreKeys }),
	durationName("forget-after", func(f *Fault) *time.Duration { return &f.ForgetAfter }),
	durationName("hide", func(f *Fault) *time.Duration { return &f.Hide }),
	durationName("pending", func(f *Fault) *time.Duration { return &f.Pending }),
	flagName("pending-fails", func(f *Fault) *bool { return &f.PendingFails }),
	flagName("decline", func(f *Fault) *bool { return &f.Decline }),
	durationName("delay-before", func(f *Fault) *time.Duration { return &f.DelayBefore }),
	durationName("delay-after", func(f *Fault) *time.Duration { return &f.DelayAfter }),
	textName("close", func(f *Fault) *Moment { return &f.Close }),
	{text: "status", set: setStatus, get: getStatus},
	flagName("stored", func(f *Fault) *bool { return &f.Stored }),
	flagName("in-progress", func(f *Fault) *bool { return &f.InProgress }),
	textName("redirect", func(f *Fault) *string { return &f.Redirect }),
	textName("retry-after", func(f *Fault) *string { return &f.RetryAfter }),
	textName("cut", func(f *Fault) *Cut { return &f.Cut }),
	{text: "body", set: setBody, get: getBody},
	{text: "body-base64", set: setBase64, get: getBase64},
}

func textName[T ~string](text string, field func(*Fault) *T) name {
	return name{
		text: text,
		set: func(f *Fault, value string) error {
			if value == "" {
				return fmt.Errorf("%s is empty: leave it out", text)
			}
			*field(f) = T(value)
			return nil
		},
		get: func(f *Fault) (string, bool) { return string(*field(f)), *field(f) != "" },
	}
}

func flagName(text string, field func(*Fault) *bool) name {
	return name{
		text: text,
		flag: true,
		set: func(f *Fault, value string) (err error) {
			if *field(f), err = strconv.ParseBool(value); err != nil {
				return fmt.Errorf("%s is neither true nor false", text)
			}
			return nil
		},
		get: func(f *Fault) (string, bool) { return "true", *field(f) },
	}
}

func durationName(text string, field func(*Fault) *time.Duration) name {
	return name{
		text: text,
		set: func(f *Fault, value string) error {
			d, err := time.ParseDuration(value)
			if err != nil || d <= 0 {
				return fmt.Errorf("%s is not a positive duration such as 900ms", text)
			}
			*field(f) = d
			return nil
		},
		get: func(f *Fault) (string, bool) { return field(f).String(), *field(f) != 0 },
	}
}

func setCount(f *Fault, value string) (err error) {
	if f.Count, err = strconv.Atoi(value); err != nil || f.Count < 1 {
		return errors.New("count is not a positive integer: leave it out for no limit")
	}
	return nil
}

func getCount(f *Fault) (string, bool) { return strconv.Itoa(f.Count), f.Count != 0 }

func setStatus(f *Fault, value string) (err error) {
	code, at, found := strings.Cut(value, "/")
	f.StatusAt = Before
	if found {
		f.StatusAt = Moment(at)
	}
	if f.Status, err = strconv.Atoi(code); err != nil {
		return errors.New("status is not like 503, 503/before or 503/after")
	}
	return nil
}

func getStatus(f *Fault) (string, bool) {
	at := f.StatusAt
	if at == "" {
		at = Before
	}
	return strconv.Itoa(f.Status) + "/" + string(at), f.Status != 0
}

func setBody(f *Fault, value string) error {
	if f.Body != nil {
		return errors.New("body and body-base64 exclude each other")
	}
	f.Body = []byte(value)
	return nil
}

func getBody(f *Fault) (string, bool) { return string(f.Body), f.Body != nil && utf8.Valid(f.Body) }

func setBase64(f *Fault, value string) error {
	body, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return errors.New("body-base64 is not standard base64")
	}
	return setBody(f, string(body))
}

func getBase64(f *Fault) (string, bool) {
	return base64.StdEncoding.EncodeToString(f.Body), f.Body != nil && !utf8.Valid(f.Body)
}

// setter fills a fault name by name and refuses what it does not know or has seen.
type setter struct {
	fault Fault
	seen  map[string]bool
}

func (s *setter) set(text, value string, alone bool) error {
	for _, n := range names {
		switch {
		case n.text != text:
			continue
		case s.seen[text]:
			return fmt.Errorf("%s is given twice", text)
		case alone && !n.flag:
			return fmt.Errorf("%s needs a value: %s=…", text, text)
		}
		if s.seen == nil {
			s.seen = map[string]bool{}
		}
		s.seen[text] = true
		return n.set(&s.fault, value)
	}
	return fmt.Errorf("%.40q is not a fault; the faults are %s", text, knownNames())
}

func knownNames() string {
	known := make([]string, len(names))
	for i, n := range names {
		known[i] = n.text
	}
	return strings.Join(known, ", ")
}

// MarshalJSON writes the fault as PUT /faults reads it, all values as strings.
func (f Fault) MarshalJSON() ([]byte, error) {
	object := map[string]string{}
	for _, n := range names {
		if value, ok := n.get(&f); ok {
			object[n.text] = value
		}
	}
	return json.Marshal(object)
}

// UnmarshalJSON reads one rule of PUT /faults. A value is a string as in the header, a number or a boolean.
func (f *Fault) UnmarshalJSON(data []byte) error {
	fields, err := members(data)
	if err != nil {
		return err
	}
	var s setter
	for _, m := range fields {
		value, err := scalar(m.value)
		if err != nil {
			return fmt.Errorf("%.40q: %w", m.name, err)
		}
		if err := s.set(m.name, value, false); err != nil {
			return err
		}
	}
	*f = s.fault
	return f.check()
}

// scalar returns a JSON string, number or boolean as text.
func scalar(raw json.RawMessage) (string, error) {
	switch raw[0] {
	case '{', '[', 'n':
		return "", errors.New("use a string, a number or a boolean")
	case '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return text, err
	}
	return string(raw), nil
}
