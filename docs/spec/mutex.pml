/*
The plain mutex, apart from the code: why no two clients hold it, and why tokens rise. `make spec` has spin try every
schedule within the bounds of docs/spec/check, and then each mutant below, for which spin must find a counter-example.

What holds in every state:
  P1  no two attempts hold the lock (in hold and alone);
  P2  the token of a lease is greater than every earlier one (in hold). Without clocks (TIMELESS): than every one that
      was there when the attempt began, and no two leases have one token;
  P3  no member gives a vote to an attempt whose release it has carried out (in gives).

The obligations, who keeps them in the code, and a test that fails without them:
  O1  validity counts from before submission       redlock/internal/core/validity.go  TestSchedulesCounterExamples
  O2  a vote counts no more when its give-up is    redlock/internal/core/giveup.go, redlock/lease.go
      submitted                                    TestDesk
  O3  calls of an owner run in order; a new        node/handshake.go  TestNothingOfABrokenConnectionIsExecutedLater
      connection kills those of the old one first
  O4  a member that may have forgotten gives no    node/internal/guard/admit.go, node/internal/guard/restore.go
      vote, and its counters are restored          TestNoScheduleOfForgetfulMembersAndGreaterMaxTTLHasTwoHolders
  O5  a token is confirmed where the vote stands   redlock/internal/core/confirm.go, lua/raise.lua
                                                   TestRaiseIsConfirmedByMembersThatVotedLater
  O6  what has ended never revives                 redlock/internal/core/term.go
                                                   TestLostLeaseIsNotRevivedByALateRenewal

What is abstracted, and why a second holder would still be found:
- Attempts, not clients. No owner is used twice, so a client that tries again, or crashed and came back, is one more
  attempt. Calls of two attempts are not ordered here, although one connection may order them.
- A crash is a release that is never carried out. A call that is lost is never carried out, or is killed.
- An answer that is heard late is a decision that is made late: decide(x) leaves x out. A refusal changes nothing: the
  attempt asks again, which is the call still under way. A vote whose validity is over is asked for again, too.
- A vote is trusted from the tick in which the member gave it, at best. The code trusts it from the submission, which is
  not later. The delay before a call is carried out only takes trust away, so it has no clock of its own.
- Clients' clocks are the ticks. A member's may gain DRIFT ticks on a TTL or a quarantine, and may lose any number: a
  vote may end when DRIFT ticks are left, and need not end at 0. Only the difference of two clocks matters.
- Waiting, pushes and hand-overs are an Ask that is carried out late, behind a release or a yield. How a push is dated
  has tests of its own (TestPushedGrantIsNeverBelievedBeyondItsKey).
- The client keeps the quarantine, by marker and look. Here the member keeps it, from the moment that it forgot. Which
  signs tell of that, TestNoScheduleOfMembersThatWereEmptiedOrFollowedACopyHasTwoHolders searches.
- Counters are restored in one step (TestNoScheduleOfPagesLosesACounter has pages). With fewer than two sources they
  continue from the clocks, which are taken to be beyond every token that was drawn.
- Renew is extend, and re-join where the member has no vote. A lease may submit it at any time.
- Members are alike, so they are sorted after each step. With OPTS=-DUNSORTED they keep their places in a trail.

Beyond the bounds: more than one question at a time between an attempt and a member (TestSchedulesExplored has that),
a second loss of memory, more tokens, longer TTLs. Not here: force, hand-off, sets, other kinds, several MaxTTL.

States visited, all of them, and seconds of processor on a busy machine: renewals 5,066,196 (21), yields 1,957,014 (8),
breaks 1,802,245 (9), losses 8,668,937 (42), three attempts 518,799 (3), without clocks 1,211,139 (5). Mutants: 56 s.
A lease is made longer with a TTL of three ticks alone: with two, its trust is one tick.
Without O3, P3 falls, and not P1: a vote is left to nobody until it ends. What is given up is named by owner and token.
*/
/* docs/spec/check gives the bounds of a search: ATTEMPTS; TTL, 2 or 3 ticks; TOKENS, the greatest; LOSSES of memory;
   whether RENEW, YIELD, BREAKS, BEATS (repeated questions) and TIMELESS happen; and a MUTANT. */
#define N 3		/* members */
#define DRIFT 1		/* ticks that a member's clock may gain on a TTL */

/* The mutants. Each takes one rule away. */
#define NONE 0
#define MAJORITY 1	/* M is one too few */
#define NO_DRIFT 2	/* a client trusts a vote for the whole TTL */
#define NO_OWNER 3	/* a give-up frees whatever vote is there */
#define O1_ANSWER 4	/* validity counts from the answer */
#define O2_UNLOCK 5	/* the lease still counts when its release has been submitted */
#define O2_YIELD 6	/* a vote still counts when it has been yielded */
#define O3_ORDER 7	/* a release may overtake the call before it */
#define O3_KILL 8	/* the calls of a broken connection live on */
#define O4_VOTES 9	/* a member that forgot votes at once */
#define O4_SHORT 10	/* the quarantine is one tick short */
#define O4_COUNTERS 11	/* counters are restored from one other member */
#define O5_NONE 12	/* no token is confirmed */
#define O5_STANDS 13	/* a member confirms a token where the vote is gone */
#define O5_ABOVE 14	/* a member confirms a token that is below the vote */
#define O6_ATTEMPT 15	/* an attempt that was given up wins with late answers */
#define O6_LEASE 16	/* a lease that has ended is revived by a late renewal */

#define is(x) (MUTANT==x)
#define NEED (is(MAJORITY) -> N/2 : N/2+1)
#define VALID (is(NO_DRIFT) -> TTL : TTL-DRIFT)
#define DEAF(c) (phase[c]==Over && !is(O6_ATTEMPT) && !is(O6_LEASE))

/* Calls, in the words of docs/protocol.md; Renew is extend and re-join. */
mtype:call = { None, Ask, Yield, Raise, Renew }
mtype:phase = { Idle, Asking, Raising, Holding, Over }

typedef Line {		/* what is between an attempt and a member */
  mtype:call call = None;	/* the call under way, or answered */
  byte said;		/* the member has carried it out and said yes */
  byte free;		/* the release is under way, behind the call */
  byte since;		/* the vote's age, in ticks, from 1; 0: none is trusted */
  byte num;		/* the vote's token, as the member said it */
  byte loose;		/* of O3_KILL: the connection broke, and the call lives on */
}
typedef Member {
  byte owner;		/* whose vote it is: attempt + 1; 0: free */
  byte token;		/* the token of the vote */
  byte left;		/* ticks until it ends */
  byte cnt;		/* the counter of tokens */
  byte forgot;		/* it has lost its memory, and gives no vote */
  byte quar;		/* ticks left of the quarantine */
  Line line[ATTEMPTS];
}
Member at[N];		/* the members */
mtype:phase phase[ATTEMPTS] = Idle;	/* how far an attempt is */
byte tok[ATTEMPTS];	/* the token of the lease, or the one to be confirmed */
byte trust[ATTEMPTS];	/* ticks for which the lease is trusted */
byte age[ATTEMPTS];	/* ticks since the renewal was submitted, from 1 */
byte losses;		/* how often members have forgotten */
byte last;		/* the greatest token of a lease */
byte top;		/* the greatest token that was drawn */
byte floor[ATTEMPTS];	/* without clocks: last, when the attempt began */
byte used[TOKENS+1];	/* without clocks: tokens of leases */
hidden byte i, n, w;	/* of loops */

#define it at[m]
#define my at[m].line[c]
#define of(m) at[m].line[c]
#define other(n) at[(m+n)%N]
#define max(a,b) ((a)>(b)->(a):(b))
#define sum(f,x) (f(0,x)+f(1,x)+f(2,x))
/* For each member m of an attempt c: x is a member whose answer has not been heard yet. */
#define voted(m,x) (m!=x && of(m).since>0 && (of(m).call==Ask && of(m).said || is(O2_YIELD) && of(m).call!=Raise))
#define exact(m,x) (voted(m,x) && of(m).num==tok[c])
#define young(m,x) (voted(m,x) && of(m).since==1)
#define raised(m,x) (of(m).call==Raise && of(m).said && of(m).since>0 && of(m).since<=x && of(m).num<=tok[c])
#define renewed(m,x) (of(m).call==Renew && of(m).said)
#define token(m,x) (voted(m,x) -> of(m).num : 0)
#define any(f) (f(0) || f(1) || f(2))
#define rivals(m) (at[m].owner!=0 && at[m].owner!=c+1)
#define keeps(m) (at[0].line[0].free && at[1].line[0].free && at[2].line[0].free)
#define forgets(m) (at[m].forgot)
#define SEES(when,what) if :: when -> c_code { sees(what); } :: else fi

c_code {
  static int cmp(const void *a, const void *b) { return memcmp(a, b, sizeof now.at[0]); }
  static void sees(const char *what) {	/* says once that something has happened, so that the search is not empty */
    static const char *seen[20];
    int i = 0;
    while (seen[i] && strcmp(seen[i], what)) i++;
    if (!seen[i]) printf("sees %s\n", seen[i] = what);
  }
}
#ifdef UNSORTED
#define sort() skip
#else
#define sort() c_code { qsort(now.at, 3, sizeof now.at[0], cmp); }
#endif

/* P1. */
inline alone() { for (i : 0 .. ATTEMPTS-1) { assert(i==c || phase[i]!=Holding) } }

/* Attempt c holds the lock from now on, and trusts its votes for t ticks: P1 and P2. */
inline hold(t) {
  if
  :: TIMELESS -> assert(tok[c] > floor[c] && !used[tok[c]]); used[tok[c]] = true
  :: else -> alone(); assert(tok[c] > last)
  fi;
  SEES(true, "a lease");
  SEES(phase[c]==Raising, "a token confirmed");
  SEES(last>0, "a lease after a lease");
  SEES(last>0 && phase[0]==Over && any(keeps), "a lease after a crash of the holder");
  SEES(any(rivals), "a lease beside a rival's vote");
  SEES(any(forgets), "a lease while a member is in quarantine");
  SEES(losses>0 && sum(voted,3)==N && !any(forgets), "a lease with the vote of a member that forgot");
  last = max(last, tok[c]);
  phase[c] = Holding; trust[c] = t;
  for (i : 0 .. N-1) {
    if :: of(i).said -> of(i).said = false; of(i).call = None :: else fi;
    of(i).num = 0; of(i).since = 0
  }
}

/* Attempt a is over: nothing counts any more (O2, O6), and then its release is submitted to all. */
inline finish(a) {
  phase[a] = Over; trust[a] = 0; w = 0;
  for (n : 0 .. N-1) {
    if
    :: DEAF(a) ->
      if :: at[n].line[a].said -> at[n].line[a].call = None; at[n].line[a].said = false :: else fi;
      if :: at[n].line[a].call!=Yield -> at[n].line[a].num = 0 :: else fi;
      if :: at[n].line[a].call>=Raise -> w = 1 :: else fi;
      at[n].line[a].since = 0
    :: else
    fi;
    at[n].line[a].free = true
  }
  if :: DEAF(a) -> age[a] = 0 :: else fi;
  if :: w==0 -> tok[a] = 0 :: else fi
}

/* A majority has answered, x aside. Its greatest token is the lease's if a majority has it; else it is raised (O5). */
inline decide(x) {
  tok[c] = max(max(token(0,x), token(1,x)), token(2,x));
  if
  :: is(O5_NONE) || sum(exact,x) >= NEED -> if :: sum(young,x) >= NEED -> hold(VALID) :: else -> hold(1) fi
  :: else -> phase[c] = Raising
  fi;
  sort()
}

/* An attempt: begins, decides, holds, renews, ends. */
proctype Attempt(byte c) {
  do
  :: d_step { phase[c]==Idle && (c==0 || phase[c-1]!=Idle) ->
      phase[c] = Asking; floor[c] = (TIMELESS -> last : 0);
      of(0).call = Ask; of(1).call = Ask; of(2).call = Ask; sort() }
  :: d_step { (phase[c]==Asking || phase[c]==Over && is(O6_ATTEMPT)) && sum(voted,0) >= NEED -> decide(0) }
  :: d_step { (phase[c]==Asking || phase[c]==Over && is(O6_ATTEMPT)) && sum(voted,1) >= NEED -> decide(1) }
  :: d_step { (phase[c]==Asking || phase[c]==Over && is(O6_ATTEMPT)) && sum(voted,2) >= NEED -> decide(2) }
  :: d_step { (phase[c]==Asking || phase[c]==Over && is(O6_ATTEMPT)) && sum(voted,3) >= NEED -> decide(3) }
  :: d_step { phase[c]==Raising && sum(raised,VALID) >= NEED ->
      if :: sum(raised,1) >= NEED -> hold(VALID) :: else -> hold(1) fi;
      sort() }
  :: d_step { RENEW && phase[c]==Holding ->
      age[c] = 1;
      for (i : 0 .. N-1) {
        if :: of(i).call==None || of(i).call==Renew -> of(i).call = Renew; of(i).said = false :: else fi
      }
      sort() }
  :: d_step { (phase[c]==Holding || phase[c]==Over && is(O6_LEASE)) && sum(renewed,0) >= NEED &&
      age[c]<=VALID && VALID+1-age[c]>trust[c] ->
      if :: phase[c]==Over -> alone(); phase[c] = Holding :: else fi;
      SEES(true, "a lease made longer");
      trust[c] = VALID+1-age[c]; sort() }
  :: d_step { is(O2_UNLOCK) && phase[c]==Holding -> of(0).free = true; of(1).free = true; of(2).free = true; sort() }
  :: d_step { phase[c]!=Idle && phase[c]!=Over -> finish(c); sort() }
  od
}

/* The vote is nobody's. */
inline clear() { it.owner = 0; it.token = 0; it.left = 0 }
/* The member gives its vote, with token t: P3. */
inline gives(t) {
  assert(phase[c]!=Over || my.free);
  it.owner = c+1; it.token = t; it.cnt = max(it.cnt,t); it.left = TTL; top = max(top,t)
}
/* The call is over, without a vote. */
inline no() { my.call = None; my.num = 0; my.since = 0 }
/* The member has done what was asked. An attempt that is over hears nothing (O6), and a lease only of renewals. */
inline yes() { if :: DEAF(c) || phase[c]==Holding && my.call!=Renew -> no() :: else -> my.said = true fi }

/* The connection of attempt c and member m, which carries its calls out in order (O3). */
proctype Calls(byte c; byte m) {
  do
  /* A repeated question gets a later vote, and the answer is not heard. */
  :: d_step { BEATS && phase[c]==Asking && my.said && it.owner==0 && it.cnt<TOKENS -> gives(it.cnt+1); sort() }
  /* The vote is given up, and counts no more (O2). */
  :: d_step { YIELD && phase[c]==Asking && my.call==Ask && my.said -> my.call = Yield; my.said = is(O2_YIELD);
      if :: !is(O2_YIELD) -> my.since = 0 :: else fi; sort() }
  :: d_step { phase[c]==Raising && my.call==Ask && my.said -> my.call = Raise; my.said = false; sort() }
  :: d_step { my.call==Ask && !my.said && !it.forgot && (it.owner==0 || it.owner==c+1 || phase[c]!=Asking) ->
      if
      :: it.owner==c+1 -> it.left = TTL; my.num = it.token; my.since = 1; yes()
      :: it.owner==0 && it.cnt<TOKENS -> gives(it.cnt+1); my.num = it.token; my.since = 1; yes()
      :: else -> no()
      fi;
      sort() }
  :: d_step { my.call==Yield ->
      if :: is(NO_OWNER) || it.owner==c+1 && it.token==my.num -> clear() :: else fi;
      if :: phase[c]!=Asking -> no() :: is(O2_YIELD) -> skip :: else -> my.call = Ask; my.num = 0 fi;
      sort() }
  :: d_step { my.call==Raise && !my.said ->
      if
      :: !it.forgot && (is(O5_STANDS) || it.owner==c+1 && (is(O5_ABOVE) || it.token<=tok[c])) ->
        it.cnt = max(it.cnt,tok[c]); yes()
      :: else -> no()
      fi;
      sort() }
  :: d_step { my.call==Renew && !my.said ->
      if
      :: it.owner==c+1 -> it.left = TTL; yes()
      :: it.owner==0 && !it.forgot -> SEES(phase[c]==Holding, "a vote that a renewal gave back"); gives(tok[c]); yes()
      :: else -> no()
      fi;
      sort() }
  :: d_step { my.free && (my.call==None || my.said || my.loose || is(O3_ORDER)) -> my.free = false;
      if :: is(NO_OWNER) || it.owner==c+1 -> clear() :: else fi;
      sort() }
  /* The connection breaks: the call is killed or its answer lost, and asked again. The release is owed, and stays. */
  :: d_step { BREAKS && my.call!=None && (phase[c]!=Asking || my.call==Yield || my.said) ->
      if
      :: is(O3_KILL) -> my.loose = true
      :: !is(O3_KILL) && phase[c]==Asking -> my.call = Ask; my.said = false; my.num = 0; my.since = 0
      :: !is(O3_KILL) && phase[c]==Raising && my.call==Raise -> my.call = Ask; my.said = true
      :: else -> my.said = false; no()
      fi;
      sort() }
  od
}

/* A member: its vote ends, it forgets, its quarantine ends and its counter is restored (O4). */
proctype Votes(byte m) {
  do
  :: d_step { it.owner>0 && (TIMELESS || it.left<=DRIFT) -> clear(); sort() }
  :: d_step { losses<LOSSES -> losses++; clear(); it.cnt = 0; it.forgot = !is(O4_VOTES);
      it.quar = (is(O4_SHORT) -> TTL-1 : TTL); sort() }
  :: d_step { it.forgot && it.quar<=DRIFT -> it.forgot = false; it.quar = 0;
      if
      :: !other(1).forgot && !other(2).forgot ->
        it.cnt = (is(O4_COUNTERS) -> other(1).cnt : max(other(1).cnt, other(2).cnt))
      :: else -> it.cnt = top
      fi;
      sort() }
  od
}

/* A tick passes everywhere: leases and votes grow older. */
proctype Time() {
  do
  :: d_step { !TIMELESS ->
      for (i : 0 .. N-1) {
        if :: at[i].left>DRIFT -> at[i].left-- :: else fi;
        if :: at[i].quar>DRIFT -> at[i].quar-- :: else fi;
        for (n : 0 .. ATTEMPTS-1) {
          if
          :: at[i].line[n].since==0 || is(O1_ANSWER) -> skip
          :: at[i].line[n].since>0 && !is(O1_ANSWER) && at[i].line[n].since<VALID -> at[i].line[n].since++
          :: else -> at[i].line[n].since = 0; at[i].line[n].num = 0;
             if :: at[i].line[n].call!=Raise -> at[i].line[n].said = false :: else fi;
             if :: phase[n]==Over -> at[i].line[n].call = None :: else fi
          fi
        }
      }
      for (i : 0 .. ATTEMPTS-1) {
        if :: age[i]>0 && age[i]<=VALID -> age[i]++ :: else fi;
        if :: trust[i]>0 -> trust[i]--; if :: trust[i]==0 -> finish(i) :: else fi :: else fi }
      sort()
    }
  od
}

init {
  atomic {
    for (i : 0 .. ATTEMPTS-1) { run Attempt(i); run Calls(i,0); run Calls(i,1); run Calls(i,2) }
    for (i : 0 .. N-1) { run Votes(i) }
    run Time()
  }
}
