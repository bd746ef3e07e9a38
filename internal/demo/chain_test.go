package demo

import "testing"

// A link that is missing, or is there twice, breaks the proof.
func TestBrokenChains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		chain  Chain
		broken string
	}{
		"whole":             {Chain{1, 1, 1}, ""},
		"no event":          {Chain{1, 0, 1}, "order_1 has a broken chain: charges 1, events 0, receipts 1"},
		"two events":        {Chain{1, 2, 1}, "order_1 has a broken chain: charges 1, events 2, receipts 1"},
		"no receipt":        {Chain{1, 1, 0}, "order_1 has a broken chain: charges 1, events 1, receipts 0"},
		"told of no charge": {Chain{0, 1, 0}, "order_1 has a broken chain: charges 0, events 1, receipts 0"},
		"two charges":       {Chain{2, 1, 1}, ""}, // said where charges are counted
	} {
		said := ""
		for _, f := range brokenChains(map[string]Chain{"1": c.chain, "2": {1, 1, 1}}) {
			said += f.String()
		}
		if said != c.broken {
			t.Errorf("%s: %q, want %q", name, said, c.broken)
		}
	}
	if sum := chainOf(map[string]Chain{"1": {1, 2, 1}, "2": {1, 1, 0}}); sum != (Chain{2, 3, 1}) {
		t.Errorf("sum %+v", sum)
	}
}
