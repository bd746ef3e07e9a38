/* The protocol of one business key, as built: two workers, recovery, two messages for the same key, a provider, and anything
 * that may go wrong in any order. `make model` checks it; see check.sh for what is checked and README.md for how to read a story.
 *
 * Time is nowhere in it. A pause is a process that takes no step while others do: its lease runs out, its message comes again.
 * The fence (attempt number and token) is `owner`: the row knows whose claim is the last one. What counts is the order of
 * commits, sends and arrivals.
 *
 * Switches: KEYED (the provider keeps idempotency keys), RESEND (a kind of a provider without keys that permits a resend after
 * two settled "absent"), LOOKUP (it can be asked), STRICT (a save demands a live lease, too).
 * Wrong on purpose: ACK_FIRST, NO_FENCE, BLIND (what timed out is sent again), NO_GATE (the sender does not look at its lease),
 * FORGETFUL (a release forgets what an older attempt may have done), ONE_READING (the first "absent" counts, settled or not).
 */
#ifndef KEYED
#define KEYED 1
#endif
#ifndef RESEND
#define RESEND 0
#endif
#ifndef LOOKUP
#define LOOKUP 1
#endif
#ifndef STRICT
#define STRICT 0
#endif
#ifndef FAULTS
#define FAULTS 2      /* how many things go wrong, at most */
#endif
#ifndef BUDGET
#define BUDGET 2      /* failures, then a person */
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif

mtype = {
  none, started, unknown, finished, review,     /* status */
  free, live, dead,                             /* lease */
  ready, held, gone,                            /* message */
  nothing, flying, answered, broken,            /* request */
  silent, ack, nak, term                        /* how a delivery ends */
};

/* the row */
mtype status = none;
mtype lease = free;
byte owner = 0;        /* whose claim is the last one: 1 and 2 are workers, 3 is recovery */
bool tended;           /* the owner lives, and renews the lease */
bool sending, unsure, absent;
byte failures;

/* the stream */
mtype message[2];
byte holder[2];        /* to whom it was delivered last */
bool acked[2];

/* the provider */
byte effects;
bool known;            /* the key */
bool shown;            /* look-ups show the effect */
byte strays;           /* requests that nobody waits for */
mtype request[4];
byte at[4];           /* which message a worker is busy with, from 1; 3: none, it is recovery; 0: idle */

byte faults;

#define fault   (faults < FAULTS) -> faults++
#define final   (status == finished || status == review)
#define over    (final && message[0] == gone && message[1] == gone)
#define mine    (owner == me)
#ifdef NO_FENCE
#define fenced  (status != finished)
#else
#define fenced  (mine && status == started && (!STRICT || lease == live))
#endif
#ifdef NO_GATE
#define open    true
#else
#define open    (mine && status == started && lease == live)
#endif
/* nothing that left can still arrive, and what arrived can be seen */
#define settled (strays == 0 && request[1] != flying && request[2] != flying && request[3] != flying && (effects == 0 || shown))

/* happen: a request arrives. */
inline happen() {
  if
  :: KEYED && known -> skip                 /* the stored answer again */
  :: else ->
     effects++;
     shown = false;
     known = true;
     assert(effects == 1)                   /* the promise */
  fi
}

/* abandon: nobody waits for my request any more. */
inline abandon() {
  if
  :: request[me] == flying -> strays++
  :: else
  fi;
  request[me] = nothing
}

/* spend: one failure; the last one calls a person. The row is mine. */
inline spend(otherwise) {
  failures++;
  if
  :: failures >= BUDGET -> failures = BUDGET; status = review
  :: else -> status = otherwise
  fi
}

proctype worker(byte me; bool recovers) {
  byte m;
  mtype verb = silent;

end_wait:
  atomic {
    if
    :: !recovers && message[0] == ready -> m = 0
    :: !recovers && message[1] == ready -> m = 1
    :: recovers && (status == started || status == unknown) && lease != live -> m = 2
    fi;
    at[me] = m + 1;
    if
    :: m < 2 -> message[m] = held; holder[m] = me
    :: else
    fi;
#ifdef ACK_FIRST
    if
    :: m < 2 -> message[m] = gone
    :: else
    fi
#endif
  }

  /* claim: one line of the table, in one commit */
  atomic {
    if
    :: fault; goto crash
    :: status == none -> status = started; owner = me; lease = live; tended = true; sending = true
    :: status == finished -> verb = ack; goto settle
    :: status == review -> verb = term; goto settle
    :: (status == started || status == unknown) && lease == live -> verb = nak; goto settle
    :: status == started && lease == dead ->            /* somebody died with it */
       unsure = unsure || sending;
       owner = me;
       spend(started);
       if
       :: status == review -> lease = free; verb = term; goto settle
       :: else -> lease = live; tended = true
       fi;
       if
       :: unsure -> sending = false; goto ask
       :: else -> sending = true
       fi
    :: status == unknown -> status = started; owner = me; lease = live; tended = true; sending = false; goto ask
    :: status == started && lease == free -> owner = me; lease = live; tended = true; sending = true    /* released */
    fi;
    if
    :: skip
    :: fault; goto crash                                 /* the answer to the commit is lost, and so is the process */
    fi
  }
  goto send;

ask:
  atomic {
    if
    :: fault; goto crash
    :: fault; goto release                               /* drained before it asked */
#ifdef BLIND
    :: goto arm
#else
    :: !LOOKUP && KEYED -> goto arm
    :: !LOOKUP && !KEYED -> goto park
    :: LOOKUP && fault; goto unsettled                   /* cannot tell */
    :: LOOKUP && effects > 0 && (shown || KEYED) -> goto found
    :: LOOKUP && (effects == 0 || !shown) ->             /* absent */
       if
       :: KEYED -> goto arm
#ifdef ONE_READING
       :: !KEYED -> goto arm
#else
       :: !KEYED && !settled -> goto unsettled
       :: !KEYED && settled && !absent ->
          if
          :: fenced -> absent = true
          :: else
          fi;
          goto unsettled
       :: !KEYED && settled && absent && RESEND -> goto arm
       :: !KEYED && settled && absent && !RESEND -> goto park
#endif
       fi
#endif
    fi
  }

arm:                                                     /* the lease is confirmed in the row right before a resend */
  atomic {
    if
    :: fault; goto crash
    :: mine && status == started && lease == live -> sending = true; absent = false
    :: else -> goto quiet
    fi
  }

send:
  atomic {
    if
    :: fault; goto crash
    :: fault; goto release                               /* the gate was shut unsent: drained, or no connection */
    :: open -> request[me] = flying
    :: !(open) -> goto quiet
    fi
  }

  atomic {
    if
    :: request[me] == answered -> request[me] = nothing; goto found
    :: request[me] == broken -> request[me] = nothing; goto lost
    :: fault; abandon(); goto lost                       /* the deadline */
    :: fault; goto crash
    fi
  }

found:
  atomic {
    if
    :: fault; goto crash                                 /* between the effect and the save */
    :: fenced -> assert(status != finished); status = finished; lease = free; owner = 0; verb = ack
    :: !(fenced) -> goto quiet
    fi;
    if
    :: goto settle
    :: fault; goto crash
    fi
  }

lost:
  atomic {
    if
    :: fault; goto crash
    :: fenced -> lease = free; owner = 0; unsure = true; sending = false; spend(unknown);
       if
       :: status == review -> verb = term
       :: else -> verb = nak
       fi;
       goto settle
    :: !(fenced) -> goto quiet
    fi
  }

unsettled:
  atomic {
    if
    :: fenced -> status = unknown; lease = free; owner = 0; verb = nak; goto settle
    :: !(fenced) -> goto quiet
    fi
  }

park:
  atomic {
    if
    :: fenced -> status = review; lease = free; owner = 0; verb = term; goto settle
    :: !(fenced) -> goto quiet
    fi
  }

release:                                                 /* legal only with the gate shut unsent */
  atomic {
    if
    :: fenced ->
       lease = free; owner = 0; sending = false; verb = nak;
#ifndef FORGETFUL
       if
       :: unsure -> status = unknown
       :: else
       fi;
#endif
       goto settle
    :: !(fenced) -> goto quiet
    fi
  }

settle:
  atomic {
    if
    :: m == 2
    :: m < 2 && verb == ack ->
       assert(final);                                    /* never before the commit */
       if
       :: message[m] = gone; acked[m] = true
       :: fault                                          /* lost on the way */
       fi
    :: m < 2 && verb == term ->
       assert(final);
       if
       :: message[m] = gone
       :: fault
       fi
    :: m < 2 && verb == nak && holder[m] == me && message[m] == held -> message[m] = ready
    :: m < 2 && verb == nak && !(holder[m] == me && message[m] == held)
    :: fault; goto crash
    fi
  }
  goto quiet;

crash:
  atomic { abandon() }

quiet:
  atomic {
    if
    :: mine -> tended = false
    :: else
    fi;
    at[me] = 0; verb = silent; m = 0; goto end_wait
  }
}

/* What the provider and the network do. */
active proctype provider() {
end_serve:
  do
  :: atomic { request[1] == flying -> happen(); request[1] = answered }
  :: atomic { request[2] == flying -> happen(); request[2] = answered }
  :: atomic { request[3] == flying -> happen(); request[3] = answered }
  :: atomic { request[1] == flying && fault; happen(); request[1] = broken }   /* the answer is cut */
  :: atomic { request[2] == flying && fault; happen(); request[2] = broken }
  :: atomic { request[1] == flying && fault; request[1] = broken }             /* it never arrives */
  :: atomic { strays > 0 -> strays--; happen() }
  :: atomic { strays > 0 -> strays-- }
  od
}

active proctype index() {
end_show:
  do
  :: atomic { effects > 0 && !shown -> shown = true }
  od
}

/* The clocks: a lease that nobody renews runs out, and so does a delivery that nobody settles. */
active proctype leases() {
end_tick:
  do
  :: atomic { lease == live && !tended -> lease = dead }
  od
}

proctype deliveries(byte i) {
end_tick:
  do
  :: atomic { message[i] == held && at[holder[i]] != i + 1 -> message[i] = ready }
  od
}

/* What goes wrong outside: pauses, a broker that forgets an ack, an operator who purges the stream. */
active proctype trouble() {
end_calm:
  do
  :: atomic { lease == live && tended && fault; lease = dead }
  :: atomic { message[0] == held && at[holder[0]] == 1 && fault; message[0] = ready }
  :: atomic { acked[0] && message[0] == gone && fault; message[0] = ready; acked[0] = false }
  :: atomic { message[0] != gone && status != none && fault; message[0] = gone }
  od
}

active proctype monitor() {
  timeout -> assert(over)                                /* nothing is pending for ever, no message is left */
}

init {
  atomic {
    request[1] = nothing; request[2] = nothing; request[3] = nothing;
    message[0] = ready;
    message[1] = (MESSAGES > 1 -> ready : gone);
    run deliveries(0); run deliveries(1);
    run worker(1, false); run worker(2, false); run worker(3, true)
  }
}

#ifdef PROGRESS
ltl progress { <> [] over }
#endif
