// Package consumertest breaks a kind on purpose. It is for the tests of whoever declares one:
//
//	func TestCharge(t *testing.T) {
//		consumertest.Break(t, consumertest.Subject[Job, Charge]{
//			Kind: func(url string) consumer.Kind[Job, Charge] { return charge(newClient(url)) },
//			Provider: func() consumertest.Provider[Job] {
//				fake := newFake()
//				return consumertest.Provider[Job]{Handler: fake, Effects: fake.charges}
//			},
//			Jobs: []Job{{OrderID: "1", Amount: 1200}, {OrderID: "2", Amount: 900}},
//		})
//	}
//
// The kind runs in real engines with a real PostgreSQL and a real JetStream, before a fake of its provider. The same job
// comes twice at once, the process dies at each point of a charge, answers are lost after the effect, look-ups fail and lie, a key
// comes with other content, the provider refuses, and an archived job is repeated. After each story the fake is asked how often
// the effect happened. What fails is told with what it would have done in production.
//
// A process dies by losing its connections: it can save nothing and ack nothing any more, and the next process makes the
// kind anew. So what the kind remembers in variables of its own is lost, as it would be.
//
// The kit runs with short clocks: it sets the policy's times, and those of the provider profile that say how long to wait. It
// takes about twenty seconds. It finds the programs of PostgreSQL on this machine, or uses the server of TEST_DATABASE_URL, or else
// that of DATABASE_URL, whose user must be allowed to create databases: it makes some of its own and removes them. A server that is
// missing fails the test.
package consumertest
