package consumertest

import (
	"sync"
	"testing"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/internal/devenv"
	"github.com/settlemq/settle/internal/devenv/devtest"
)

// The servers of the tests are guarded by a process that is this test binary started again.
func init() { devenv.RunChild() } //nolint:gochecknoinits // a test without TestMain has no other first thing

// Main runs the tests of a package and stops the PostgreSQL server that they used. It is optional: without it the server
// ends with the test binary.
//
//	func TestMain(m *testing.M) { consumertest.Main(m) }
func Main(m *testing.M) { devtest.Main(m) }

// Break runs a kind through everything that goes wrong in production, each story as a subtest, at the same time. It
// blocks until all have ended, about twenty seconds.
func Break[J, R any](t *testing.T, s Subject[J, R]) {
	t.Helper()
	if s.Kind == nil || s.Provider == nil || len(s.Jobs) < 2 {
		t.Fatal("consumertest: Kind, Provider and two different Jobs are required")
	}
	if p := s.Provider(); p.Handler == nil || p.Effects == nil {
		t.Fatal("consumertest: the provider needs a Handler and Effects")
	}
	if _, err := consumer.Describe(consumer.Config{}, s.Kind("http://127.0.0.1")); err != nil {
		t.Fatalf("consumertest: the kind cannot be used: %v", err)
	}
	all := append(stories[J, R](), story[J, R]{"key", nil})
	hands := make(chan struct{}, atOnce)
	var told sync.WaitGroup
	for _, c := range all {
		told.Go(func() {
			hands <- struct{}{}
			defer func() { <-hands }()
			t.Run(c.name, func(t *testing.T) {
				if c.tell == nil {
					lint(t, s)
					return
				}
				c.tell(newStage(t, s))
			})
		})
	}
	told.Wait()
}

// atOnce is how many stories are told at the same time. They wait most of the time, so the number of processors, by which
// parallel tests go, would make a queue.
const atOnce = 8

// story is one thing that goes wrong.
type story[J, R any] struct {
	name string
	tell func(*stage[J, R])
}

func stories[J, R any]() []story[J, R] {
	return []story[J, R]{
		{"nothing goes wrong", (*stage[J, R]).quietDay},
		{"the same job twice at once", (*stage[J, R]).twiceAtOnce},
		{"the process dies before the send", (*stage[J, R]).dieBeforeTheSend},
		{"the process dies after the effect", (*stage[J, R]).dieAfterTheEffect},
		{"the process dies before the save", (*stage[J, R]).dieBeforeTheSave},
		{"the process dies before the ack", (*stage[J, R]).dieBeforeTheAck},
		{"the answer is lost", (*stage[J, R]).answerLost},
		{"the answer is late", (*stage[J, R]).answerLate},
		{"a server error after the effect", (*stage[J, R]).errorAfterTheEffect},
		{"look-ups fail", (*stage[J, R]).lookupsFail},
		{"a look-up lies", (*stage[J, R]).lookupLies},
		{"other content under the same key", (*stage[J, R]).otherContent},
		{"the provider refuses", (*stage[J, R]).refused},
		{"a repeat after archiving", (*stage[J, R]).archived},
	}
}
