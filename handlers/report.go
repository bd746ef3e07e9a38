package handlers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/settlemq/settle/consumer"
)

const (
	reportKind     = "report.create"
	reportPrefix   = "report-task-"
	reportResource = "reports"
	statusReady    = "ready"
	statusFailed   = "failed"

	maxReportType = 255 // bytes
)

// ReportOptions are the settings of the kind report.create.
type ReportOptions struct {
	// Policy overrides Config.Policy; zero fields do not.
	Policy consumer.Policy
	// Provider is the provider's profile. An empty Identity is the client's; KeyPrefix is the kind's own.
	Provider consumer.Provider
	// Poll is how soon a report that the provider has accepted is asked about again; 1 s.
	Poll time.Duration
}

// ReportJob is one report to make.
type ReportJob struct {
	TaskID     TaskID `json:"task_id"`
	ReportType string `json:"report_type"` // required
}

// ReportResult is what is stored of a report, and replayed to every repeat.
type ReportResult struct {
	ReportID string `json:"report_id"`      // may be empty only if the provider refused without making one
	Status   string `json:"status"`         // ready, failed or pending
	Code     string `json:"code,omitempty"` // why it failed
}

// Report declares report.create: one report is made for each task id. The provider may take its time: a report
// that it has accepted is polled, never asked for again.
func Report(api *Client, o ReportOptions) consumer.Kind[ReportJob, ReportResult] {
	r := report{api: api, poll: orDefault(o.Poll, defaultPoll)}
	return consumer.Kind[ReportJob, ReportResult]{
		Name: reportKind,
		Contract: consumer.Contract{
			Effect:    "one report at the report provider",
			Rows:      "none",
			Success:   "the provider reports it as ready",
			SecondRun: "returns the stored report id",
			StopRule: "a report that the provider refuses, or that fails there, ends the job as failed. A person decides about an answer that " +
				"contradicts the job, and about an outcome that nobody can tell within the limits",
		},
		Policy:     o.Policy,
		Provider:   profile(o.Provider, api, reportPrefix),
		Content:    consumer.Content{IDs: []string{"task_id"}},
		Key:        ReportJob.key,
		Refs:       ReportJob.refs,
		Perform:    r.perform,
		Lookup:     r.lookUp,
		ExternalID: func(r ReportResult) string { return r.ReportID },
	}
}

func (j ReportJob) key() (string, error) {
	id, err := j.TaskID.Text()
	if err != nil {
		return "", fmt.Errorf("task_id: %w", err)
	}
	if j.ReportType == "" || len(j.ReportType) > maxReportType || strings.ContainsFunc(j.ReportType, unicode.IsControl) {
		return "", errors.New("report_type: absent, too long, or with control characters")
	}
	return reportPrefix + id, nil
}

// refs: key has checked the id.
func (j ReportJob) refs() consumer.Refs { return consumer.Refs{"task": j.TaskID.raw} }

// report does the work of the kind.
type report struct {
	api  *Client
	poll time.Duration
}

// reportAnswer is a report as the provider describes it. A POST tells less of it than a look-up.
type reportAnswer struct {
	ReportID   string `json:"report_id"`
	Status     string `json:"status"`
	TaskID     TaskID `json:"task_id"`
	ReportType string `json:"report_type"`
}

func (r report) perform(ctx context.Context, a *consumer.Attempt[ReportJob]) (ReportResult, error) {
	got, err := post(ctx, r.api, a, reportResource, a.Job)
	if err != nil {
		return refusedReport(got), err
	}
	said, err := readReport(got)
	if err != nil {
		return ReportResult{}, err
	}
	result := said.result(got)
	switch {
	case got.status == statusAccepted, said.Status == statusPending:
		result.Status = statusPending
		return result, consumer.Accepted(r.poll)
	case said.Status == statusFailed:
		return result, consumer.Refused(got.problem())
	case said.Status == statusReady, said.Status == "":
		result.Status = statusReady
		return result, nil
	}
	return ReportResult{}, got.about(errStatus)
}

func (r report) lookUp(ctx context.Context, a *consumer.Attempt[ReportJob]) (ReportResult, consumer.Verdict, error) {
	return lookUp(ctx, r.api, a, reportResource, func(got answer) (ReportResult, consumer.Verdict, error) {
		said, err := readReport(got)
		if err != nil {
			return ReportResult{}, consumer.CannotTell, err
		}
		result := said.result(got)
		if said.contradicts(a) {
			return result, consumer.Contradictory, nil
		}
		switch said.Status {
		case statusReady:
			return result, consumer.Found, nil
		case statusFailed:
			return result, consumer.FoundRefused, nil
		case statusPending:
			return result, consumer.Running, nil
		}
		return ReportResult{}, consumer.CannotTell, got.about(errStatus)
	})
}

func readReport(got answer) (said reportAnswer, err error) {
	if err := got.decode(&said); err != nil {
		return reportAnswer{}, err
	}
	if !usableID(said.ReportID) {
		return reportAnswer{}, got.about(errBadID)
	}
	return said, nil
}

func (s reportAnswer) result(got answer) ReportResult {
	r := ReportResult{ReportID: s.ReportID, Status: s.Status}
	if s.Status == statusFailed {
		r.Code = got.code()
	}
	return r
}

// refusedReport is what an answer that is not a success tells about a report: its result, if it is a refusal.
func refusedReport(got answer) ReportResult {
	r := ReportResult{Status: statusFailed, Code: got.code()}
	if id := got.member("report_id"); usableID(id) {
		r.ReportID = id
	}
	return r
}

// contradicts tells whether the provider's report is not the one that was asked for. What it does not tell is
// not compared.
func (s reportAnswer) contradicts(a *consumer.Attempt[ReportJob]) bool {
	task, err := s.TaskID.Text()
	return a.ExternalID != "" && s.ReportID != a.ExternalID ||
		err == nil && task != a.Job.TaskID.raw ||
		s.ReportType != "" && s.ReportType != a.Job.ReportType
}
