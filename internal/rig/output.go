package rig

import (
	"strings"
	"sync"
	"testing"
)

// output passes lines on to the test's log and keeps them.
type output struct {
	t      testing.TB
	mu     sync.Mutex
	prefix string
	all    strings.Builder
	line   []byte
}

func (o *output) name(prefix string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.prefix = prefix
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all.Write(b)
	for _, c := range b {
		if c == '\n' {
			o.log()
			continue
		}
		o.line = append(o.line, c)
	}
	return len(b), nil
}

func (o *output) log() {
	line := string(o.line)
	o.line = o.line[:0]
	o.t.Logf("[%s] %s", o.prefix, line)
	if strings.Contains(line, "WARNING: DATA RACE") {
		o.t.Errorf("[%s] reported a data race", o.prefix)
	}
}

func (o *output) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.line) > 0 {
		o.log()
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all.String()
}
