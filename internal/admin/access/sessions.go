package access

import (
	"sync"
	"time"
)

const (
	rotateEvery     = 15 * time.Minute // a session gets a new id
	oldIDFor        = time.Minute      // requests under way still carry the one before
	sessionsPerUser = 20               // the one used longest ago ends for another
)

// sessions holds who has signed in, by the digests of their ids. Users are few and each has a bounded number.
type sessions struct {
	idle, lifetime time.Duration

	mu   sync.Mutex
	byID map[digest]*session
}

type session struct {
	user    User // as it was at sign-in; another password ends the session, another role does not
	id      string
	created time.Time
	used    time.Time

	rotated  time.Time
	previous digest // still good for oldIDFor after rotated; zero: none
}

func newSessions(idle, lifetime time.Duration) *sessions {
	return &sessions{idle: idle, lifetime: lifetime, byID: map[digest]*session{}}
}

// start makes a session and returns its id, which is always a new one.
func (s *sessions) start(u User, now time.Time) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeRoom(u.Name, now)
	n := &session{user: u, id: randomText(), created: now, used: now, rotated: now}
	s.byID[digestOf(n.id)] = n
	return n.id
}

// makeRoom ends what has expired, and the user's oldest session where there are too many.
func (s *sessions) makeRoom(name string, now time.Time) {
	var oldest *session
	count := 0
	for id, one := range s.byID {
		switch {
		case s.expired(one, now):
			s.drop(one)
		case one.user.Name == name && id != one.previous:
			count++
			if oldest == nil || one.used.Before(oldest.used) {
				oldest = one
			}
		}
	}
	if count >= sessionsPerUser {
		s.drop(oldest)
	}
}

func (s *sessions) expired(one *session, now time.Time) bool {
	return now.Sub(one.used) >= s.idle || now.Sub(one.created) >= s.lifetime
}

func (s *sessions) drop(one *session) {
	delete(s.byID, digestOf(one.id))
	delete(s.byID, one.previous)
}

// find returns the user of a session as it was at sign-in. use says whether the request counts as use. A fresh id, if
// any, has to be sent to the browser.
func (s *sessions) find(id string, use bool, now time.Time) (u User, fresh string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := digestOf(id)
	one, ok := s.byID[given]
	if !ok {
		return u, "", false
	}
	if s.expired(one, now) {
		s.drop(one)
		return u, "", false
	}
	old := given == one.previous
	if old && now.Sub(one.rotated) >= oldIDFor {
		delete(s.byID, one.previous)
		return u, "", false
	}
	if use {
		one.used = now
	}
	switch {
	case old: // the answer with the new id may have been lost
		fresh = one.id
	case now.Sub(one.rotated) >= rotateEvery:
		fresh = s.rotate(one, now)
	}
	return one.user, fresh, true
}

func (s *sessions) rotate(one *session, now time.Time) string {
	delete(s.byID, one.previous)
	one.previous, one.rotated, one.id = digestOf(one.id), now, randomText()
	s.byID[digestOf(one.id)] = one
	return one.id
}

// end ends the session of an id, with all its ids.
func (s *sessions) end(id string) (u User, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.byID[digestOf(id)]
	if !ok {
		return u, false
	}
	s.drop(one)
	return one.user, true
}

// keepOnly ends the sessions of users who are gone or have another password.
func (s *sessions) keepOnly(users []User) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.byID {
		if now, ok := findUser(users, one.user.Name); !ok || now.password != one.user.password {
			s.drop(one)
		}
	}
}
