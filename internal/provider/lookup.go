package provider

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
)

// search is GET on a resource by idempotency_key.
func search(res resource) operation {
	return operation{
		key:  queryKey,
		read: func(x *exchange) error { return checkQuery(x.r) },
		do: func(ctx context.Context, x *exchange) (answer, error) {
			return x.lookUp(ctx, res, res.byKey, x.call.Key)
		},
	}
}

// find is GET on a resource by its id.
func find(res resource) operation {
	return operation{
		key:  func(*http.Request) string { return "" },
		read: func(*exchange) error { return nil },
		do: func(ctx context.Context, x *exchange) (answer, error) {
			id := storable(x.r.PathValue("id"))
			return x.lookUp(ctx, res, res.byID, id)
		},
	}
}

func (x *exchange) lookUp(ctx context.Context, res resource, sql string, arg any) (answer, error) {
	e, err := scanEffect(x.pool.QueryRow(ctx, sql, arg))
	if errors.Is(err, pgx.ErrNoRows) {
		return notFound, nil
	}
	if err != nil {
		return answer{}, fmt.Errorf("look up: %w", err)
	}
	return res.found(e), nil
}

func queryKey(r *http.Request) string { return r.URL.Query().Get("idempotency_key") }

// checkQuery demands exactly one good key.
func checkQuery(r *http.Request) error {
	if len(r.URL.Query()["idempotency_key"]) != 1 {
		return errors.New("name one key: ?idempotency_key=K")
	}
	return checkKey(queryKey(r))
}

// stats answers GET /stats: W and E, of one key where one is named.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	sql, args := countAll, []any{}
	if r.URL.Query().Has("idempotency_key") {
		if err := checkQuery(r); err != nil {
			refuseBad(w, err)
			return
		}
		sql, args = countKey, []any{queryKey(r)}
	}
	var counts struct {
		Requests int64 `json:"requests"`
		Effects  int64 `json:"effects"`
	}
	if err := s.pool.QueryRow(r.Context(), sql, args...).Scan(&counts.Requests, &counts.Effects); err != nil {
		s.log.ErrorContext(r.Context(), "provider statistics failed", "error", err)
		errorAnswer(http.StatusInternalServerError, "internal", "").send(w)
		return
	}
	writeJSON(w, http.StatusOK, counts)
}
