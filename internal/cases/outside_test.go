package cases

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/settlemq/settle/idemstore"
	"github.com/settlemq/settle/internal/devenv/devtest"
	"github.com/settlemq/settle/internal/rig"
)

// courier is the provider of the service in internal/outside.
type courier struct {
	mu     sync.Mutex
	labels map[string]string // by idempotency key
	posts  int
}

func (c *courier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if r.Method == http.MethodGet {
		key = r.URL.Query().Get("key")
	} else {
		c.posts++
		c.labels[key] = "label of " + key
	}
	if c.labels[key] == "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"number": c.labels[key]})
}

// A service in a module of its own, which cannot see the internal packages, is built from the public ones alone: its
// kind, its table and its pool are its own.
func TestAServiceOutsideOfThisModule(t *testing.T) {
	t.Parallel()
	shop := filepath.Join(t.TempDir(), "shop")
	outside := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"-C", "../outside"}, args...)...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	outside("vet", "./...")
	outside("build", "-o", shop, ".")

	pool := devtest.Pool(t)
	natsURL, js := devtest.JetStream(t)
	post := &courier{labels: map[string]string{}}
	server := httptest.NewServer(post)
	t.Cleanup(server.Close)
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), shop, args...)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+pool.Config().ConnString(), "NATS_URL="+natsURL, "COURIER_URL="+server.URL)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		return cmd
	}
	if err := command("order", "7", "8", "7").Run(); err != nil {
		t.Fatal(err)
	}
	work := command("work")
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	store := idemstore.New(pool, soon)
	for _, order := range []string{"7", "8"} {
		rig.Eventually(t, soon, "the parcel of order "+order+" is booked", func() bool {
			task, err := store.Find(t.Context(), "parcel.book", "parcel_"+order)
			return err == nil && task.Status == idemstore.Finished && task.ExternalID == "label of "+task.ProviderKey
		})
	}
	if err := work.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := work.Wait(); err != nil {
		t.Errorf("work ended with %v", err)
	}
	var booked int
	if err := pool.QueryRow(t.Context(), `select count(*) from parcels.labels where label like 'label of %'`).Scan(&booked); err != nil {
		t.Fatal(err)
	}
	post.mu.Lock()
	defer post.mu.Unlock()
	if post.posts != 2 || booked != 2 {
		t.Errorf("%d requests at the courier, %d rows, want 2 and 2", post.posts, booked)
	}
	stream, err := js.Stream(t.Context(), "JOBS")
	if err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("messages are left (%v)", err)
	}
}
