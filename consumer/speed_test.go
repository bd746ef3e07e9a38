package consumer

import (
	"context"
	"fmt"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// Pure steps of the main path, by themselves. internal/bench measures the whole.

func BenchmarkRead(b *testing.B) {
	d, err := Kind[payJob, paid]{Name: "bench.pay", Contract: Contract{Effect: "none"},
		Key:        func(j payJob) (string, error) { return j.Order.Text() },
		Perform:    func(context.Context, *Attempt[payJob]) (paid, error) { return paid{}, nil },
		ExternalID: func(p paid) string { return p.ID },
	}.define()
	if err != nil {
		b.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"order":"18452","note":%q}`, fmt.Sprintf("%0200d", 7))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.read(body, maxBody); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecideClaim(b *testing.B) {
	f := claimFacts{exists: true, knownAlgorithm: true, sameHash: true, status: idemstore.Started, lease: leaseExpired,
		sending: true, maxFailures: 5}
	b.ReportAllocs()
	for b.Loop() {
		if decideClaim(f) != idemstore.Ask {
			b.Fatal("not asked")
		}
	}
}
