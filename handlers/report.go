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
	reportKind   = "report.create"
	reportPrefix = "report-task-"

	maxReportType = 255 // bytes
)

var reports = resource{path: "reports", idName: "report_id", done: "ready", refused: "failed"}

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
	TaskID     IntegerID `json:"task_id"`
	ReportType string    `json:"report_type"` // required
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
	r := report{api: api, profile: profile(o.Provider, api, reportPrefix), poll: o.Poll}
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
		Provider:   r.profile,
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
	api     *Client
	profile consumer.Provider
	poll    time.Duration
}

func (r report) perform(ctx context.Context, a *consumer.Attempt[ReportJob]) (ReportResult, error) {
	e, err := create(ctx, r.api, reports, a, a.Job, r.profile, r.poll)
	return ReportResult{e.id, e.status, e.code}, err
}

func (r report) lookUp(ctx context.Context, a *consumer.Attempt[ReportJob]) (ReportResult, consumer.Verdict, error) {
	e, verdict, err := find(ctx, r.api, reports, a, a.Job.same)
	return ReportResult{e.id, e.status, e.code}, verdict, err
}

// same compares what a look-up tells about a report with the job. What it does not tell is not compared.
func (j ReportJob) same(got answer) (bool, error) {
	var said ReportJob
	if err := got.decode(&said); err != nil {
		return false, err
	}
	task, err := said.TaskID.Text()
	return (err != nil || task == j.TaskID.raw) && (said.ReportType == "" || said.ReportType == j.ReportType), nil
}
