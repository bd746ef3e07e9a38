package access

import (
	"net/netip"
	"sync"
	"time"
)

const (
	freeByName    = 3                // wrong passwords for a name before anybody waits
	freeByAddress = 10               // from an address: an office may share one
	longestWait   = 30 * time.Second // two guesses a minute; nobody is locked out for longer
	forgetAfter   = 15 * time.Minute // without a failure
	mostTracked   = 10_000           // names, and as many addresses; about 2 MB
)

// attempts makes guessing passwords slow: after a few failures each further one doubles the time to the next, for the name
// and for the address. Names that do not exist are treated alike.
//
// Somebody who keeps guessing a name must not keep its owner out: from an address where a name has signed in before, only
// the failures from there count.
type attempts struct {
	mu        sync.Mutex
	byName    *recent[failures]
	byAddress *recent[failures]
	known     *recent[struct{}] // names with addresses that have succeeded
}

type failures struct {
	count int
	last  time.Time
	next  time.Time // no try before
	told  bool      // that somebody came too early was logged
}

func newAttempts() *attempts {
	return &attempts{
		byName: newRecent[failures](mostTracked), byAddress: newRecent[failures](mostTracked), known: newRecent[struct{}](mostTracked),
	}
}

// begin asks for a try. Without a wait it is counted as failed at once, so that many at the same time are not let through
// together; succeed takes that back. first is true for the first one that is told to wait, until the next try.
func (a *attempts) begin(name string, from netip.Addr, now time.Time) (wait time.Duration, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, address := a.keys(name, from)
	for _, f := range []*failures{standing(a.byAddress, address, now), standing(a.byName, name, now)} {
		if left := f.next.Sub(now); left > wait {
			wait, first = left, !f.told
			f.told = true
		}
	}
	if wait > 0 {
		return wait, first
	}
	a.byAddress.touch(address).add(now, freeByAddress)
	a.byName.touch(name).add(now, freeByName)
	return 0, false
}

// succeed says that the try which began last had the right password. The address keeps its other failures: whoever has a
// user of his own must not clear the way to the others with it.
func (a *attempts) succeed(name string, from netip.Addr, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, address := a.keys(name, from)
	a.byName.remove(key)
	if f, ok := a.byAddress.look(address); ok {
		f.count, f.next = max(0, f.count-1), now
	}
	a.known.touch(pair(name, address))
}

func (a *attempts) keys(name string, from netip.Addr) (nameKey, address string) {
	address = network(from).String()
	if _, ok := a.known.look(pair(name, address)); ok {
		name = pair(name, address)
	}
	return name, address
}

func pair(name, address string) string { return name + " " + address }

// network is what one owner of addresses has at least.
func network(from netip.Addr) netip.Prefix {
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	prefix, _ := from.WithZone("").Prefix(bits) // within its length
	return prefix
}

// standing is what counts of a key now; where nothing does, a value of its own.
func standing(all *recent[failures], key string, now time.Time) *failures {
	f, ok := all.look(key)
	if !ok {
		return &failures{}
	}
	if now.Sub(f.last) >= forgetAfter {
		*f = failures{}
	}
	return f
}

func (f *failures) add(now time.Time, free int) {
	f.count++
	f.last, f.told = now, false
	f.next = now.Add(waitAfter(f.count, free))
}

// waitAfter is the pause after so many failures: 1 s after the free ones, doubled with each, up to longestWait.
func waitAfter(count, free int) time.Duration {
	if count <= free {
		return 0
	}
	return min(longestWait, time.Second<<min(count-free-1, 10))
}
