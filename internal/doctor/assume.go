package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/settlemq/settle/consumer"
)

// stopGrace is what a worker may take at its end beyond the drain timeout: last saves, acks and telemetry.
const stopGrace = 20 * time.Second

// assumptions are what the promise rests on and what cannot be checked from here, as far as these kinds need it.
func assumptions(f *Facts) (out []Assumption) {
	keyed := slices.ContainsFunc(f.remote(), func(k consumer.Description) bool { return !k.Provider.Unkeyed })
	unkeyed := slices.ContainsFunc(f.remote(), func(k consumer.Description) bool { return k.Provider.Unkeyed })
	say := func(needed bool, id, what, ensure string) {
		if needed {
			out = append(out, Assumption{id, what, ensure})
		}
	}
	say(keyed, "key-with-effect", "the provider stores key and effect in one step",
		"ask it: after a crash on its side, is there ever an effect without its key?")
	say(keyed, "key-same-request", "the same key, account, endpoint and bytes go out in each attempt",
		"Settle sees to it; do not point SETTLE_PROVIDER_URL at another account while tasks are open")
	for _, k := range f.remote() {
		if !k.Provider.Unkeyed {
			say(true, "key-lifetime", fmt.Sprintf("the provider of %s keeps keys for at least %s from the first send on; resends rest on them for %s",
				k.Name, k.Provider.KeyLifetime, k.UsableKey), "compare SETTLE_PROVIDER_KEY_LIFETIME with its documentation")
			say(true, "refusals-stored", fmt.Sprintf("the provider of %s stores the answers %v under the key and gives them again", k.Name, k.Provider.Stored),
				"ask it: is a declined charge declined again under the same key?")
		} else {
			say(true, "absent-is-final", fmt.Sprintf("%s after the last send the provider of %s has decided each request, and a look-up shows it",
				k.Provider.AbsentAfter, k.Name), "compare SETTLE_ABSENT_AFTER with its documentation")
		}
	}
	say(unkeyed, "no-pause-at-the-socket", "no worker stands still between its last look at the clock and the socket for longer than the absent-after time",
		"nobody can promise it, and the send gate makes it microseconds; do not freeze workers (SIGSTOP, live migration), or keep SETTLE_UNKEYED_RESEND off")
	say(true, "commits-survive", "a confirmed commit is never forgotten, by a crash or by a failover",
		"fsync on, synchronous standbys, no restore of an old backup without settle recover (the settings are checked above)")
	say(true, "database-clock", "the database's clock does not jump ahead by more than the margins of leases and keys",
		"let a time service slew it and never step it; a standby that takes over has the same time")
	say(true, "stream-keeps", "the stream keeps a message until its first claim has committed",
		"no purge and no removal of messages by hand (its limits are checked above); an acknowledged publish survives with 3 replicas or sync_interval: always")
	say(f.Broker == nil || f.Broker.Sync == nil, "sync-interval", "the broker has acknowledged jobs on its disk before its machine fails",
		"jetstream { sync_interval: always } or 3 replicas; --nats-monitor http://HOST:8222 lets settle doctor look")
	say(true, "stop-grace", fmt.Sprintf("whoever stops a worker waits for %s after SIGTERM", f.Config.DrainTimeout+stopGrace),
		fmt.Sprintf("terminationGracePeriodSeconds: %d, stop_grace_period, TimeoutStopSec", int((f.Config.DrainTimeout+stopGrace).Seconds())))
	return out
}
