package rig

import (
	"bytes"
	"strings"
)

// bound says how a statement bounds a transaction.
type bound int

const (
	within bound = iota
	begins
	commits
	rollsBack
)

// boundary reads the first words of one statement, after comments. Statements are told apart by ";" alone, so a
// literal with "; commit" in it is misread; no test needs one.
func boundary(sql string) bound {
	words := strings.Fields(strings.ToLower(withoutComments(sql)))
	if len(words) == 0 {
		return within
	}
	second := ""
	if len(words) > 1 {
		second = words[1]
	}
	switch words[0] {
	case "begin":
		return begins
	case "start":
		if second == "transaction" {
			return begins
		}
	case "commit", "end":
		if second != "prepared" {
			return commits
		}
	case "rollback", "abort":
		if second != "to" && second != "prepared" {
			return rollsBack
		}
	}
	return within
}

// withoutComments drops the comments that a statement begins with.
func withoutComments(sql string) string {
	for {
		sql = strings.TrimSpace(sql)
		end := "\n"
		switch {
		case strings.HasPrefix(sql, "/*"):
			end = "*/"
		case !strings.HasPrefix(sql, "--"):
			return sql
		}
		_, rest, found := strings.Cut(sql, end)
		if !found {
			return ""
		}
		sql = rest
	}
}

// cstring splits b after its first NUL-terminated string.
func cstring(b []byte) (s string, rest []byte) {
	before, rest, _ := bytes.Cut(b, []byte{0})
	return string(before), rest
}
