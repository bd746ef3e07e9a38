package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/bcrypt"
)

// The bounds of a password.
const (
	MinPassword = 12 // characters
	MaxPassword = 72 // bytes: bcrypt looks at no more
)

// passwordCost is the work factor of bcrypt, about a quarter of a second of one core. All passwords of a file have the
// same, so that the time of a sign-in does not tell whether a name exists.
const passwordCost = 12

// tokenPrefix makes tokens recognisable to scanners that look for leaked secrets.
const tokenPrefix = "settle_"

// digest is what is kept of a token or of a session's id: both are random and long, so that no salt is needed.
type digest [sha256.Size]byte

func digestOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

// randomText holds 256 random bits.
func randomText() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails, see its documentation
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// GeneratePassword returns a random password of 120 bits that can be read out and typed.
func GeneratePassword() string {
	text := strings.ToLower(rand.Text()[:24]) // base32: 5 bits each
	return strings.Join([]string{text[:6], text[6:12], text[12:18], text[18:]}, "-")
}

// CheckPassword says what is wrong with a new password for name.
func CheckPassword(name, password string) error {
	switch {
	case !utf8.ValidString(password) || strings.ContainsFunc(password, isControl):
		return errors.New("password: holds control characters or bytes that are not UTF-8")
	case utf8.RuneCountInString(password) < MinPassword:
		return fmt.Errorf("password: too short, take at least %d characters", MinPassword)
	case len(password) > MaxPassword:
		return fmt.Errorf("password: too long, take at most %d bytes", MaxPassword)
	case strings.Contains(strings.ToLower(password), name) && len(password) < len(name)+MinPassword:
		return errors.New("password: is little more than the name, take another one")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }

func hashPassword(password string, cost int) (string, error) {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), cost)
	if err != nil {
		return "", fmt.Errorf("password: %w", err)
	}
	return string(hash), nil
}

// checkHash refuses what bcrypt could not compare with in the time that all others take.
func checkHash(hash string, cost int) error {
	found, err := bcrypt.Cost([]byte(hash))
	switch {
	case err != nil || len(hash) != 60:
		return errors.New("password is not a bcrypt hash")
	case found != cost:
		return fmt.Errorf("password is hashed with cost %d, must be %d, the same for all", found, cost)
	}
	return nil
}

const tokenScheme = "sha256:"

func parseTokenHash(text string) (d digest, err error) {
	sum, ok := strings.CutPrefix(text, tokenScheme)
	raw, err := hex.DecodeString(sum)
	if !ok || err != nil || len(raw) != len(d) {
		return d, fmt.Errorf("token is not %s and 64 hex digits", tokenScheme)
	}
	return digest(raw), nil
}

func (d digest) hex() string { return hex.EncodeToString(d[:]) }

func (d digest) equal(other digest) bool { return subtle.ConstantTimeCompare(d[:], other[:]) == 1 }
