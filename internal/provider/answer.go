package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// answer is what goes back to the client.
type answer struct {
	status     int
	body       []byte
	retryAfter string
	location   string
	cut        Cut
	close      bool // nothing goes back
	replayed   bool // it is a stored error
}

func jsonAnswer(status int, value any) answer {
	body, err := json.Marshal(value)
	if err != nil {
		panic("provider: an answer is not JSON: " + err.Error())
	}
	return answer{status: status, body: body}
}

// errorAnswer answers with a word for programs and, where it helps, a sentence for people.
func errorAnswer(status int, word, sentence string) answer {
	fields := map[string]string{"error": word}
	if sentence != "" {
		fields["message"] = sentence
	}
	return jsonAnswer(status, fields)
}

func badRequest(err error) answer {
	return errorAnswer(http.StatusBadRequest, "bad_request", err.Error())
}

var notFound = errorAnswer(http.StatusNotFound, "not_found", "")

// instead returns what the fault answers without any effect; ok is false when the request goes on to its effect.
func (f Fault) instead() (a answer, ok bool) {
	status, at := f.Status, f.StatusAt
	if f.Redirect != "" && status == 0 {
		status = http.StatusTemporaryRedirect
	}
	switch {
	case f.Close == Before:
		return answer{close: true}, true
	case f.InProgress:
		return f.dress(errorAnswer(http.StatusConflict, "request_in_progress", "")), true
	case status != 0 && at != After:
		return f.dress(f.failure(status)), true
	}
	return answer{}, false
}

// after returns what the fault makes of the true answer.
func (f Fault) after(a answer) answer {
	switch {
	case f.Close == After:
		return answer{close: true}
	case f.Status >= 500:
		return f.dress(f.failure(f.Status))
	case f.Status != 0:
		a.status = f.Status
	}
	return f.dress(a)
}

func (f Fault) failure(status int) answer {
	return errorAnswer(status, "fault", http.StatusText(status))
}

func (f Fault) dress(a answer) answer {
	a.retryAfter, a.location, a.cut = f.RetryAfter, f.Redirect, f.Cut
	if f.Body != nil {
		a.body = f.Body
	}
	return a
}

// send writes the answer so that the client has all of it when send returns.
func (a answer) send(w http.ResponseWriter) {
	if a.close || a.cut != "" {
		a.breakOff(w)
		return
	}
	a.header(w.Header())
	w.WriteHeader(a.status)
	// The client may be gone; nobody is left to tell.
	_, _ = w.Write(a.body)
	_ = http.NewResponseController(w).Flush()
}

func (a answer) header(h http.Header) {
	h.Set("Content-Type", "application/json")
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	if a.retryAfter != "" {
		h.Set("Retry-After", a.retryAfter)
	}
	if a.replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	if a.location != "" {
		h.Set("Location", a.location)
	}
}

// breakOff writes what a cut leaves of the answer, which may be nothing, and closes the connection.
func (a answer) breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // what net/http offers where a connection cannot be taken over
	}
	_, _ = conn.Write(a.remains())
	_ = conn.Close()
}

// remains returns the bytes on the wire of an answer that is broken off.
func (a answer) remains() []byte {
	if a.close {
		return nil
	}
	whole := a.body
	if len(whole) == 0 {
		whole = bytes.Repeat([]byte{' '}, 100)
	}
	var wire bytes.Buffer
	fmt.Fprintf(&wire, "HTTP/1.1 %d %s\r\n", a.status, http.StatusText(a.status))
	h := http.Header{}
	a.header(h)
	if a.cut == CutChunk {
		h.Del("Content-Length")
		h.Set("Transfer-Encoding", "chunked")
	} else {
		h.Set("Content-Length", strconv.Itoa(len(whole)))
	}
	_ = h.Write(&wire) // a bytes.Buffer takes everything
	wire.WriteString("\r\n")
	if a.cut == CutChunk {
		fmt.Fprintf(&wire, "%x\r\n", len(whole))
	}
	wire.Write(whole[:len(whole)/2])
	return wire.Bytes()
}

func writeJSON(w http.ResponseWriter, status int, value any) { jsonAnswer(status, value).send(w) }

func refuseBad(w http.ResponseWriter, err error) { badRequest(err).send(w) }
