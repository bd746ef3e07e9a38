package cases

import (
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/idemstore"
)

// randomText is base-64 text that does not compress. The seed is fixed, so that a failure can be repeated.
func randomText(length int) string {
	source := rand.NewChaCha8([32]byte{17})
	raw := make([]byte, length)
	_, _ = source.Read(raw) // never fails
	return base64.RawStdEncoding.EncodeToString(raw)[:length]
}

// There is one limit for keys, looked at before any SQL: whether the text would compress makes no difference.
func TestD17KeyLimit(t *testing.T) {
	t.Parallel()
	s := newCalmStage(t)
	rec := s.throughRecorder()
	s.serve(referenceKinds)
	const most = 512 - len("order_")
	good := []job{charge(randomText(300)), charge(randomText(most)), charge(strings.Repeat("x", most))}
	long := []job{
		charge(randomText(2600)), charge(randomText(4096)), charge(strings.Repeat("x", 4096)),
		charge(randomText(most + 1)), charge(strings.Repeat("x", most+1)),
	}
	s.publish(long...)
	s.publish(good...)
	s.publish(good...)
	for _, j := range good {
		s.awaitStatus(j, idemstore.Finished)
	}
	s.awaitSettled()
	for _, j := range good {
		task, _ := s.find(j)
		posts := rec.posts(task.ProviderKey)
		if len(task.ProviderKey) > 64 || len(posts) != 1 || task.Attempt != 1 || task.Duplicates != 1 {
			t.Errorf("key of %d bytes: sent as %q %d times, %d attempts, %d duplicates",
				len(j.key), task.ProviderKey, len(posts), task.Attempt, task.Duplicates)
		}
	}
	if e := s.allEffects(); e != len(good) || rec.strays() != 0 {
		t.Errorf("E=%d, want %d; %d requests without a key", e, len(good), rec.strays())
	}
	if refused := s.refusals(); !slices.Equal(refused, slices.Repeat([]string{"bad_key"}, len(long))) {
		t.Errorf("refused %q, want %d times bad_key", refused, len(long))
	}
	if tasks := query[int](s, `select count(*)::int from settle.tasks`); tasks[0] != len(good) {
		t.Errorf("%d tasks", tasks[0])
	}
}
