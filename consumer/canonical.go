package consumer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// hashAlgorithm names the way from a body to its content hash; it is stored beside every hash. Rows outlive
// builds, and a build that hashes otherwise under the same name would take honest repeats for conflicts:
// whoever changes one byte of the canonical form must give it a new name.
//
// settle-1 is the SHA-256 of this form of the object, where each value begins with a byte for its type:
//
//	null, true, false  'n' 't' 'f'
//	number             '#' and, as a text, its exact decimal value: "0", or digits that neither begin nor end
//	                   with 0, 'e', exponent; '-' in front of a negative one (1200 and 1.2e3 are "12e2")
//	string             '"' and, as a text, its decoded UTF-8 bytes
//	array              '[', number of items, the items in order
//	object             '{', number of members, then name (a text) and value of each, sorted by name bytes
//
// A text is its length in bytes and the bytes. Lengths and counts are unsigned varints. Top-level members in
// Content.Volatile are left out; those in Content.IDs, if integers, are written as a string of their digits.
const hashAlgorithm = "settle-1"

// hash returns the content hash of the document, 32 bytes.
func (d *document) hash(c Content) []byte {
	sum := sha256.Sum256(d.canonical(c))
	return sum[:]
}

func (d *document) canonical(c Content) []byte {
	dst := make([]byte, 0, len(d.body)+len(d.body)/8+16)
	if len(c.Volatile) == 0 && len(c.IDs) == 0 {
		return appendCanonical(dst, &d.root)
	}
	volatile := func(m node) bool { return slices.Contains(c.Volatile, m.name) }
	members := slices.DeleteFunc(slices.Clone(d.root.children), volatile)
	for i := range members {
		if m := &members[i]; m.kind == numberNode && isIntegerLiteral(m.text) && slices.Contains(c.IDs, m.name) {
			m.kind = stringNode
		}
	}
	return appendCanonical(dst, &node{kind: objectNode, children: members})
}

func appendCanonical(dst []byte, n *node) []byte {
	dst = append(dst, byte(n.kind))
	switch n.kind {
	case nullNode, trueNode, falseNode:
	case numberNode:
		dst = appendText(dst, decimal(n.text))
	case stringNode:
		dst = appendText(dst, n.text)
	case arrayNode:
		dst = binary.AppendUvarint(dst, uint64(len(n.children)))
		for i := range n.children {
			dst = appendCanonical(dst, &n.children[i])
		}
	case objectNode:
		dst = binary.AppendUvarint(dst, uint64(len(n.children)))
		for i := range n.children {
			dst = appendText(dst, n.children[i].name)
			dst = appendCanonical(dst, &n.children[i])
		}
	}
	return dst
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// decimal returns the one spelling of a number literal's value. The exponent is computed, never expanded, so
// 1e100000 costs no more than its eight bytes.
func decimal(literal string) string {
	sign, digits, fraction, exponent := splitNumber(literal)
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "0"
	}
	significant := strings.TrimRight(digits, "0")
	shift := len(digits) - len(significant) - fraction
	return sign + significant + "e" + addExponent(exponent, shift)
}

// splitNumber takes a number literal apart: "-12.5e3" is "-", "125", 1 digit of fraction, exponent "3".
func splitNumber(literal string) (sign, digits string, fraction int, exponent string) {
	if strings.HasPrefix(literal, "-") {
		sign, literal = "-", literal[1:]
	}
	mantissa := literal
	if e := strings.IndexAny(literal, "eE"); e >= 0 {
		mantissa, exponent = literal[:e], strings.TrimPrefix(literal[e+1:], "+")
	}
	whole, frac, _ := strings.Cut(mantissa, ".")
	if frac != "" {
		whole += frac
	}
	return sign, whole, len(frac), exponent
}

// addExponent returns exponent + shift in decimal. It works on the digits, in linear time: an exponent may be
// as long as the body, and big.Int would need minutes for one of a few megabytes.
func addExponent(exponent string, shift int) string {
	digits, negative := strings.CutPrefix(exponent, "-")
	digits = strings.TrimLeft(digits, "0")
	sign := ""
	if negative {
		sign, shift = "-", -shift
	}
	if len(digits) <= 18 {
		e, _ := strconv.ParseInt(digits, 10, 64) // empty: 0
		if e += int64(shift); negative {
			e = -e
		}
		return strconv.FormatInt(e, 10)
	}
	return sign + addToDigits(digits, int64(shift))
}

// addToDigits returns digits + n for more than 18 digits and a much smaller n. Only the last 18 are computed
// with; a carry of one goes into the others.
func addToDigits(digits string, n int64) string {
	const unit = 1_000_000_000_000_000_000 // 18 digits
	high, low := digits[:len(digits)-18], digits[len(digits)-18:]
	sum, _ := strconv.ParseInt(low, 10, 64)
	switch sum += n; {
	case sum < 0:
		sum += unit
		high = carry(high, '0', '9', -1)
	case sum >= unit:
		sum -= unit
		high = carry("0"+high, '9', '0', 1)
	}
	return strings.TrimLeft(high+fmt.Sprintf("%018d", sum), "0")
}

// carry adds step to the last digit; where that is the limit, it wraps around and the one before it is next.
func carry(digits string, limit, wrapped byte, step int) string {
	end := strings.TrimRight(digits, string(limit))
	last := byte(int(end[len(end)-1]) + step)
	return end[:len(end)-1] + string(last) + strings.Repeat(string(wrapped), len(digits)-len(end))
}

func isIntegerLiteral(number string) bool { return !strings.ContainsAny(number, ".eE") }
