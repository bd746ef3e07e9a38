package consumer

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Every row of the tables in the package comment and of what a person may do, and the tests that show it on real parts: what the row says,
// how often the provider was asked for the effect and about it, and what became of the message. The tables themselves,
// with every combination of facts, are in decide_test.go, judge_test.go and claimtable_test.go.
const protocol = `
claim    1 no row                                     | TestPerformTable/done
claim    2 locked by somebody                         | TestMessageForALockedRow
claim    3 hashed by another build, other bytes       | TestMessageForARow/hashed by an older build, other bytes
claim    4 other content                              | TestMessageForARow/D-14: finished, and other content
claim    4 other content, while somebody holds it     | TestMessageForARow/held by somebody, and other content
claim    5 finished                                   | TestMessageForARow/D-01: finished, redelivered
claim    5 failed                                     | TestMessageForARow/failed
claim    6 needs_review                               | TestMessageForARow/waits for a person
claim    7 lease live                                 | TestMessageForARow/held by somebody
claim    8 not due                                    | TestMessageForARow/not due
claim    9 too old                                    | TestPerformSpent/too old at the claim
claim    9 budget used up                             | TestPerformSpent/budget used up at the claim
claim    9 budget used up by the crash itself         | TestPerformSpent/D-11: the last of the attempts that died
claim   10 expired, was sending                       | TestAskAbsentKeyed/D-37: a crash in the middle of a send
claim   11 expired, only asked, unsure                | TestAskAbsentKeyed/a crash while only asking, unsure
claim   11 expired, only asked, nothing sent before   | TestAskAbsentKeyed/a crash while only asking, nothing sent before
claim   12 unknown                                    | TestAskVerdicts/found
claim   13 released                                   | TestMessageForARow/released
claim    - what the constraints exclude               | TestMessageForAnImpossibleRow/started without a lease, and sending
perform done                                          | TestPerformTable/done
perform done, another id than the row's               | TestPerformTable/done, with another id than the row's
perform done, late proof of another id                | TestProofDuringTheResend/done, with another id
perform done, local rows refused                      | TestPerformUnbooked/constraint
perform refused, local rows refused                   | TestPerformUnbooked/refused, and not booked
perform accepted                                      | TestPerformTable/accepted
perform refused                                       | TestPerformRefused/refused
perform refused while unsure, stored under the key    | TestPerformRefused/while unsure, the refusal is stored under the key
perform refused while unsure, otherwise               | TestPerformRefused/while unsure, refusals are forgotten; TestPerformRefused/while unsure, no keys
perform refused while unsure, not by the provider     | TestRefusalByProfile/by Check
perform refused, and late proof came in               | TestProofDuringTheResend/refused without an id
perform not sent: status                              | TestPerformNotSent/throttled
perform not sent: no connection                       | TestPerformNotSent/nobody listens
perform not sent: TLS                                 | TestPerformNotSent/no TLS where TLS should be
perform not sent: gate shut                           | TestDeadlineShutsTheGate/asks the gate too late; TestKeyGrowsOldBeforeTheSend
perform not sent, while unsure                        | TestPerformNotSent/throttled while unsure
perform not sent: 401, 405                            | TestPerformTable/misconfigured, and surely not applied: unauthorized
perform drained, unsent                               | TestDrainUnsent/the handler waits and sends
perform drained, unsent, unsure                       | TestDrainBetweenSteps/before the resend is armed; TestDrainWhileAsking
perform drained, sent                                 | TestDrainSentIsCutShort; TestDrainSentIsCutShortWithoutKeys
perform misconfigured                                 | TestPerformTable/misconfigured: forbidden; cases.TestD27RedirectsAreNotFollowed
perform unknown: timeout                              | TestPerformUnknown/timeout
perform unknown: cut                                  | TestPerformUnknown/cut after the effect; TestPerformUnknown/cut before the effect
perform unknown: 5xx                                  | TestPerformUnknown/D-30: effect, then 500; TestPerformUnknown/503 with a wish
perform unknown: cut body                             | TestPerformUnknown/D-34: short body
perform unknown: unmapped status                      | TestPerformUnknown/a status that nobody mapped
perform unknown: panic                                | TestPerformUnknown/D-41: panic before the send; TestPerformUnknown/D-41: panic after the answer
perform unknown, no keys                              | TestPerformUnknown/no keys: not before absent may count
perform an earlier request still at work              | TestInProgress/first send; cases.TestD31InProgressForLong
perform an error stored under the key                 | TestReplayedError/at the first send
perform conflict                                      | TestPerformTable/conflict; TestPerformTable/conflict before anything was sent
perform budget or age used up                         | TestPerformSpent/last failure; TestPerformSpent/too old by the time it is saved
perform fence raised                                  | TestLostWithAResult; TestProofAfterTheEnd
perform proof against what is over                    | TestProofAfterTheEnd; TestProofThatAFailedTaskHappened; TestForcedOverALiveAttempt
perform gate shut by lease loss                       | TestLostBeforeTheSend; cases.TestFrozenBeforeTheSend
perform COMMIT answer lost                            | cases.TestD18CommitNotAnswered
ask     found                                         | TestAskVerdicts/found
ask     found refused                                 | TestAskVerdicts/found refused
ask     other content, or two effects                 | TestAskVerdicts/other content, or two; TestAskKnownID/found under another id
ask     absent, id known                              | TestAskKnownID/not known to the provider
ask     late proof                                    | TestAskKnownID/D-38: late proof; TestProofBeforeTheResend
ask     still running                                 | TestAskVerdicts/still running; TestStories/D-33: accepted, polled until ready, never created again
ask     cannot tell                                   | TestAskVerdicts/cannot tell; TestAskVerdicts/cannot tell, with a wish
ask     absent, key young                             | TestAskAbsentKeyed/young; TestKeyLifetimeBoundary/a minute before
ask     no look-up, key young                         | TestAskNoLookup/young
ask     absent, not settled                           | TestAskAbsentUnkeyed/not settled; TestAbsentAfterBoundary/a minute before
ask     absent, not settled, key too old              | TestAskAbsentKeyed/D-40: forgotten key, not settled; TestKeyLifetimeBoundary/on the moment
ask     absent, not settled, another provider         | TestKeyLifetimeBoundary/another account now
ask     absent, first reading                         | TestAskAbsentUnkeyed/first reading; TestAbsentAfterBoundary/on the moment
ask     absent, second reading, permitted by the kind | TestAskAbsentUnkeyed/second reading, resend permitted; TestReadingsAreASecondApart
ask     absent, second reading, permitted once        | TestAskAbsentUnkeyed/second reading, a person allows one resend
ask     absent, second reading, sent to another one   | TestAskAbsentUnkeyed/second reading, resend permitted, and it was sent to another account
ask     absent, second reading, not permitted         | TestAskAbsentUnkeyed/second reading, not permitted
ask     no look-up, key not young                     | TestAskNoLookup/D-40: forgotten key; TestAskNoLookup/no keys
ask     absent, the provider replays a stored error   | TestReplayedError/absent for sure; TestReplayedErrorStories/marked from the second time on
ask     no look-up, a stored error                    | TestReplayedError/nobody to ask
person  asks now                                      | TestAskNowVerdicts; TestAskNowIsReadOnly
person  asks now, and two ids are known               | TestAskNowWithTwoEffects
person  retries what needs review                     | TestRetryAsksFirst; TestRetryOfAStoredError
person  retries what never left                       | TestRetryOfWhatNeverLeft
person  retries what failed                           | TestD44RetryOfFailed
person  retries what is not booked                    | TestRetryBooks
person  sends again                                   | TestD29SendAgain
person  sends again, permitted already                | TestSendAgainElsewhere
person  resolves                                      | TestResolve
person  resolves over a live lease                    | TestForcedOverALiveAttempt
person  cancels                                       | TestCancelRunsCommit
person  supersedes                                    | TestSupersedeTakesTheRefusedContent
person  presses twice                                 | TestD44PressedTwice; TestD44RetryAllTwice
person  does anything else                            | TestD44ForbiddenActs
`

// The tests that the list names are there, subtests by the text of their names.
func TestProtocolIsShown(t *testing.T) {
	t.Parallel()
	sources := map[string]map[string]string{"": testSources(t, "."), "cases": testSources(t, "../internal/cases")}
	for line := range strings.Lines(strings.TrimSpace(protocol)) {
		_, tests, ok := strings.Cut(line, "|")
		if !ok {
			t.Fatalf("no tests in %q", line)
		}
		for test := range strings.SplitSeq(tests, ";") {
			place, test, elsewhere := strings.Cut(strings.TrimSpace(test), ".Test")
			if elsewhere {
				test = "Test" + test
			} else {
				place, test = "", place
			}
			name, sub, hasSub := strings.Cut(test, "/")
			source, there := sources[place][name]
			if !there || hasSub && !strings.Contains(source, strconv.Quote(sub)) {
				t.Errorf("there is no test %q for %s", test, line)
			}
		}
	}
}

// testSources are the texts of the test functions of a package.
func testSources(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				out[f.Name.Name] = string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return out
}
