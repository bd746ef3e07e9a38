package consumertest

import (
	"context"
	"net/http"

	"github.com/settlemq/settle/consumer"
	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/rig"
)

// quietDay: the job is done, and a repeat gets its result without a request.
func (s *stage[J, R]) quietDay() {
	s.start(nil)
	key := s.publish(s.job())
	s.finished(key)
	before := len(s.front.sent())
	s.publish(s.job())
	s.await(key, "repeated", func(t idemstore.Task) bool { return t.Duplicates > 0 && s.stored() == 0 })
	if now := len(s.front.sent()); now != before {
		s.t.Errorf("A repeat of a finished job sent %d requests. Does Key depend on anything but the job?", now-before)
	}
	s.once()
	if s.ungated.Load() {
		s.t.Error("A result came and no request passed the send gate: in production a worker that stood still for longer than its lease sends when it wakes, " +
			"after another one has finished the job. Send through consumer.Transport, or ask Attempt.MaySend before each request.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.skips {
		if c.not != "" && c.not == c.happened {
			s.t.Errorf("Commit does the same for an event that is out of date, and was not sent, as for one that happened: in production an old event is "+
				"booked over a newer one. Look at Final.Happened.\n%s", c.not)
		}
	}
}

func (s *stage[J, R]) twiceAtOnce() {
	arrived, proceed := make(chan struct{}), make(chan struct{})
	s.front.onSend(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		select {
		case <-proceed:
		case <-r.Context().Done():
		}
		s.front.provider.ServeHTTP(w, r)
	})
	s.start(nil)
	s.start(nil)
	key := s.publish(s.job())
	rig.Await(s.t, arrived, soon, "the first one is at the provider")
	s.publish(s.job())
	s.await(key, "seen twice", func(t idemstore.Task) bool { return t.Duplicates > 0 })
	close(proceed)
	s.finished(key)
}

// dying runs a process that dies when a send comes, and then one that does not.
func (s *stage[J, R]) dying(happens bool) {
	var p *process
	ready := make(chan struct{})
	s.front.onSend(func(_ http.ResponseWriter, r *http.Request) {
		<-ready
		if happens {
			s.front.happen(r)
		}
		p.die()
		hangUp()
	})
	p = s.start(nil)
	close(ready)
	s.finishedByAnother(s.publish(s.job()))
}

// finishedByAnother checks what becomes of a job that another process takes over.
func (s *stage[J, R]) finishedByAnother(key string) {
	s.t.Helper()
	s.await(key, "begun", func(idemstore.Task) bool { return true })
	s.start(nil)
	s.finished(key)
}

func (s *stage[J, R]) dieBeforeTheSend()  { s.dying(false) }
func (s *stage[J, R]) dieAfterTheEffect() { s.dying(true) }

func (s *stage[J, R]) dieBeforeTheSave() {
	dead := make(chan struct{})
	s.start(func(p *process, k *consumer.Kind[J, R]) {
		perform := k.Perform
		k.Perform = func(ctx context.Context, a *consumer.Attempt[J]) (R, error) {
			defer close(dead)
			defer p.die()
			return perform(ctx, a)
		}
	})
	key := s.publish(s.job())
	rig.Await(s.t, dead, soon, "the first process is dead")
	s.finishedByAnother(key)
}

func (s *stage[J, R]) dieBeforeTheAck() {
	p := s.start(nil)
	acked := p.nats.CutBefore(rig.PublicationCut{Do: p.die})
	key := s.publish(s.job())
	rig.Await(s.t, acked.Fired(), soon, "the first process acks")
	before := len(s.front.sent())
	s.finishedByAnother(key)
	if now := len(s.front.sent()); now != before {
		s.t.Errorf("A job whose result was saved was sent %d times more, because its ack was lost.", now-before)
	}
}

// answerLost: the connection breaks after the effect. The look-up has to find what is there.
func (s *stage[J, R]) answerLost() {
	s.front.onSend(s.lost)
	s.start(nil)
	s.finished(s.publish(s.job()))
	s.foundFirst()
}

// foundFirst checks that the first look-up after a lost answer knows what happened.
func (s *stage[J, R]) foundFirst() {
	s.t.Helper()
	said := s.said()
	if len(said) == 0 || said[0] == consumer.Found || said[0] == consumer.Running {
		return
	}
	if said[0] == consumer.Absent {
		s.t.Error("The look-up says Absent about an effect that exists: in production a timeout makes Settle send again, and only the provider's memory " +
			"for keys, if it has one, keeps it from a second effect.")
		return
	}
	s.t.Errorf("The look-up says %v about an effect that exists, so each timeout needs more look-ups and in the end a person.", said[0])
}

// answerLate: the effect happens and the answer takes longer than the deadline.
func (s *stage[J, R]) answerLate() {
	s.front.onSend(func(_ http.ResponseWriter, r *http.Request) {
		s.front.happen(r)
		<-r.Context().Done()
	})
	s.start(nil)
	s.finished(s.publish(s.job()))
	s.foundFirst()
}

func (s *stage[J, R]) errorAfterTheEffect() {
	s.front.onSend(func(w http.ResponseWriter, r *http.Request) {
		s.front.happen(r)
		w.WriteHeader(http.StatusBadGateway)
	})
	s.start(nil)
	s.finished(s.publish(s.job()))
}

// lookupsFail: while the provider answers no look-up, nobody knows anything.
func (s *stage[J, R]) lookupsFail() {
	s.front.onSend(s.lost)
	s.front.onLookups(-1, answer(http.StatusInternalServerError))
	s.start(nil)
	key := s.publish(s.job())
	if s.kind().Lookup == nil {
		s.finished(key)
		return
	}
	poll(func() bool { return len(s.said()) >= 2 || s.stored() == 0 })
	for _, v := range s.said() {
		if v != consumer.CannotTell {
			s.t.Errorf("The look-up says %v when the provider answers 500: that is a guess. An error of the provider means CannotTell.", v)
			break
		}
	}
	s.front.clear()
	s.finished(key)
}

// lookupLies: the provider says once that there is nothing, because it reads from a copy that lags behind.
func (s *stage[J, R]) lookupLies() {
	s.front.onSend(s.lost)
	s.front.onLookups(1, answer(http.StatusNotFound))
	s.start(nil)
	s.finished(s.publish(s.job()))
}

func (s *stage[J, R]) otherContent() {
	k := s.kind()
	bodies, err := changed(k, s.job())
	if err != nil {
		s.t.Fatal(err)
	}
	s.start(nil)
	s.finished(s.publish(s.job()))
	for member, body := range bodies {
		before := s.refusedMessages()
		key := s.publishBody(k.Name, s.job(), body)
		s.await(key, "met by other content", func(idemstore.Task) bool { return s.stored() == 0 })
		if s.refusedMessages() == before {
			s.t.Errorf("The same key with another %q passes as a repeat: in production a changed order is taken for done.", member)
		}
	}
	s.once()
}

// refusedMessages counts them.
func (s *stage[J, R]) refusedMessages() int {
	s.t.Helper()
	found, err := s.store.Refusals(s.t.Context(), idemstore.RefusalFilter{})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(found)
}

// refused: the provider says no. That is an outcome like any other, and Commit has to tell it from the others.
func (s *stage[J, R]) refused() {
	s.front.onSend(s.provider.Refuse)
	s.start(nil)
	task := s.settled(s.publish(s.job()))
	if n := s.provider.Effects(s.job()); n > 1 {
		s.t.Errorf("The provider refused, and then the effect happened %d times.", n)
	}
	if task.Status != idemstore.Failed {
		s.t.Errorf("The provider refused and the task is %s (%s): in production each refused job is tried again, or waits for a person. Return "+
			"consumer.Refused for the provider's answer (Provider.Refuse is how the fake says it).", task.Status, task.LastError)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.refusals {
		if c.not != "" && c.not == c.happened {
			s.t.Errorf("Commit does the same for a refused job as for one that happened: in production a declined order is marked as paid. "+
				"Look at Final.Refused.\n%s", c.not)
		}
	}
}

func (s *stage[J, R]) archived() {
	s.start(nil)
	key := s.publish(s.job())
	s.finished(key)
	s.await(key, "archived", func(t idemstore.Task) bool {
		if _, err := s.store.Archive(s.t.Context(), idemstore.Slice{}); err != nil {
			s.t.Fatal(err)
		}
		return t.ArchivedAt != nil
	})
	before := len(s.front.sent())
	s.publish(s.job())
	s.await(key, "repeated", func(t idemstore.Task) bool { return t.Duplicates > 0 && s.stored() == 0 })
	if now := len(s.front.sent()); now != before {
		s.t.Errorf("A repeat of an archived job sent %d requests.", now-before)
	}
	s.once()
}
