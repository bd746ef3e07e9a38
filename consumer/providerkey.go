package consumer

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxKey is the longest business key in bytes. It is fixed and checked before any SQL: a unique B-tree index
	// takes no more than about 2,700 bytes, and how much more depends on how well the key compresses.
	maxKey = 512

	maxKindName      = 64      // bytes
	maxProviderKey   = 64      // bytes that a provider is sure to take
	maxPrefix        = 32      // bytes
	derivedPrefix    = "s1-"   // begins every derived provider key and no plain one
	derivedDigits    = 40      // hex digits of a derived key: 160 bits
	subjectPrefix    = "jobs." // of a kind's subject
	kindNameSyntax   = `^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*$`
	kindNameExamples = `lower-case words joined by dots, like payment.charge`
)

var kindNames = regexp.MustCompile(kindNameSyntax)

// checkKindName refuses a kind that cannot be a subject and a consumer name.
func checkKindName(name string) error {
	if len(name) > maxKindName {
		return fmt.Errorf("kind name of %d bytes, limit %d", len(name), maxKindName)
	}
	if !kindNames.MatchString(name) {
		return fmt.Errorf("kind name %q: want %s", name, kindNameExamples)
	}
	return nil
}

// subject is where jobs of a kind travel.
func subject(kind string) string { return subjectPrefix + kind }

// consumerName is the durable consumer of a kind. Dots are not allowed in one, dashes not in a kind, so that no
// two kinds share a name.
func consumerName(kind string) string { return strings.ReplaceAll(kind, ".", "-") }

// checkKey refuses what cannot be a business key: 1 to 512 bytes of UTF-8, no control characters, not only
// white space. Keys are compared byte for byte: nothing is trimmed, folded or normalised. Errors are of type
// *refusalError and do not quote the key.
func checkKey(key string) error {
	switch {
	case key == "":
		return badKey("key is empty")
	case len(key) > maxKey:
		return badKey("key of %d bytes, limit %d", len(key), maxKey)
	case !utf8.ValidString(key):
		return badKey("key is not valid UTF-8")
	case strings.TrimSpace(key) == "":
		return badKey("key is only white space")
	}
	if at := strings.IndexFunc(key, unicode.IsControl); at >= 0 {
		return badKey("key has a control character at byte %d", at)
	}
	return nil
}

// providerKey is the Idempotency-Key of a task: at most 64 bytes of printable ASCII, the same in every attempt.
// A key that begins with the kind's own prefix is sent as it is, if it fits; any other is derived from kind and
// key, so that two kinds at one provider never meet.
func providerKey(kind, key, prefix string) string {
	if prefix != "" && strings.HasPrefix(key, prefix) && len(key) <= maxProviderKey &&
		isPrintable(key) && !strings.HasPrefix(key, derivedPrefix) {
		return key
	}
	return derivedPrefix + digest(kind, key)[:derivedDigits]
}

// messageID is the Nats-Msg-Id of a job. The content is part of it: an honest repeat is dropped by the server,
// while the same key with other content gets through and is found as a conflict.
func messageID(kind, key string, hash []byte) string { return digest(kind, key, string(hash)) }

// digest is the SHA-256, in hex, of the parts with a NUL between them. Neither kinds nor keys hold a NUL.
func digest(parts ...string) string {
	h := sha256.New()
	for i, part := range parts {
		if i > 0 {
			h.Write([]byte{0})
		}
		_, _ = io.WriteString(h, part) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}

// prefixOf is the plain-key prefix of one kind at one provider.
type prefixOf struct{ kind, provider, prefix string }

// checkPrefixes makes sure that plain provider keys of two kinds can never be equal: no prefix may begin
// another at the same provider, and none may meet the derived keys. Empty prefixes, which never apply, are
// passed over, and a kind does not collide with itself. The error names the kinds.
func checkPrefixes(prefixes []prefixOf) error {
	sorted := slices.SortedFunc(slices.Values(prefixes), func(a, b prefixOf) int {
		return cmp.Or(cmp.Compare(len(a.prefix), len(b.prefix)), cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.kind, b.kind))
	})
	for i, p := range sorted {
		if p.prefix == "" {
			continue
		}
		if err := checkPrefix(p); err != nil {
			return err
		}
		for _, shorter := range sorted[:i] {
			if collide(shorter, p) {
				return fmt.Errorf("kinds %s and %s: key prefix %q begins %q at the same provider",
					shorter.kind, p.kind, shorter.prefix, p.prefix)
			}
		}
	}
	return nil
}

func collide(shorter, p prefixOf) bool {
	return shorter.prefix != "" && shorter.kind != p.kind && shorter.provider == p.provider &&
		strings.HasPrefix(p.prefix, shorter.prefix)
}

func checkPrefix(p prefixOf) error {
	switch {
	case len(p.prefix) > maxPrefix:
		return fmt.Errorf("kind %s: key prefix of %d bytes, limit %d", p.kind, len(p.prefix), maxPrefix)
	case !isPrintable(p.prefix):
		return fmt.Errorf("kind %s: key prefix %q is not printable ASCII", p.kind, p.prefix)
	case strings.HasPrefix(p.prefix, derivedPrefix) || strings.HasPrefix(derivedPrefix, p.prefix):
		return fmt.Errorf("kind %s: key prefix %q meets %q, which derived keys begin with", p.kind, p.prefix, derivedPrefix)
	}
	return nil
}
