package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/settlemq/settle/internal/bench"
)

// peer is a contestant with what one should know of it.
type peer struct {
	name     string
	usual    bool                                   // measured unless others are asked for
	make     func(o bench.Options) bench.Contestant // nil: package bench has it
	settings []string                               // each with its reason
}

// slots of Settle's kinds: the default of settle bench.
const slots = 512

// peers are in the order of the table; the first is compared with the others.
var peers = []peer{
	{name: "external", usual: true, settings: []string{
		fmt.Sprintf("%d slots, a pool of 64 connections, everything else by default: fence, content hash, leases, every index of schema.sql", slots),
		"no telemetry: name metrics in --only to have it measured with the metrics of settle work",
	}},
	riverPeer,
	{name: "loop", usual: true, settings: []string{
		"64 goroutines, each with a connection: insert, update, confirmed ack for each message; one table with the key as its only index beside the primary key",
	}},
	prototypePeer,
	transportPeer,
	batchedPeer,
	arraysPeer,
	watermillPeer,
	dbosPeer,
}

// fewer are the jobs of a contestant that is many times slower than the others, so that it takes no longer.
func fewer(o bench.Options) int { return max(o.Jobs/fewerBy, 1) }

const fewerBy = 10

func names() []string { return namesOf(func(peer) bool { return true }) }

func usual() []string { return namesOf(func(p peer) bool { return p.usual }) }

func namesOf(wanted func(peer) bool) (names []string) {
	for _, p := range peers {
		if wanted(p) {
			names = append(names, p.name)
		}
	}
	return names
}

// others are the contestants that package bench does not have.
func others(o bench.Options) []bench.Contestant {
	all := variants()
	for _, p := range peers {
		if p.make != nil {
			all = append(all, p.make(o))
		}
	}
	return all
}

// variants are contestants at other concurrencies than the one that they are measured with, to see that it is their best.
func variants() (all []bench.Contestant) {
	for _, n := range []int{16, 32, 48, 96, 128} {
		all = append(all, bench.Loop(fmt.Sprintf("loop-%d", n), n))
	}
	for _, n := range []int{64, 256, 500, 1000, 2000} {
		all = append(all, riverWith(fmt.Sprintf("river-%d", n), n))
	}
	for _, n := range []int{1, 2, 4, 8} {
		all = append(all, prototypeWith(fmt.Sprintf("prototype-%d", n), n))
	}
	return all
}

// tuned are the names of the variants, after what they are compared with.
func tuned() []string {
	names := []string{"external", "loop"}
	for _, c := range variants() {
		names = append(names, c.Name)
	}
	return names
}

// expect fails unless a query, which counts something twice, finds as many as there are jobs each time.
func expect(ctx context.Context, s *bench.Stage, query string) error {
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	var rows, done int
	if err := conn.QueryRow(ctx, query).Scan(&rows, &done); err != nil {
		return err
	}
	if rows != s.Jobs || done != s.Jobs {
		return fmt.Errorf("%d jobs were queued; there are %d rows, and %d different keys were done once", s.Jobs, rows, done)
	}
	return nil
}

// measure runs the contestants that are asked for.
func measure(ctx context.Context, o bench.Options) (*table, error) {
	o.Slots, o.Rows, o.Stuck = slots, 1, 1
	o.Others = others(o)
	r, err := bench.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return tableOf(r, slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return !slices.Contains(o.Only, p.name) })), nil
}
