package prometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Series is one series that a query has found.
type Series struct {
	Labels map[string]string
	// Values has a 1 for each histogram, which is no number.
	Values []float64
}

// client keeps no connections: tests count goroutines.
var client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// get asks Prometheus's API and decodes the data of the answer.
func (p *Prometheus) get(ctx context.Context, path string, params url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path+"?"+params.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, res.Status, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, res.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// result is what a query answers: samples are pairs of a time and a text.
type result struct {
	Result []struct {
		Metric map[string]string
		Value  [2]any
		Values [][2]any
		// Histograms are native ones, where the values would be.
		Histograms [][2]any
	}
}

// Value returns what an expression that is one number is now.
func (p *Prometheus) Value(ctx context.Context, expr string) (float64, error) {
	var r result
	if err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}}, &r); err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	if len(r.Result) != 1 {
		return 0, fmt.Errorf("%s: %d series, where one is expected", expr, len(r.Result))
	}
	return number(r.Result[0].Value)
}

// Range returns the series of an expression from a time until now.
func (p *Prometheus) Range(ctx context.Context, expr string, from time.Time) ([]Series, error) {
	params := url.Values{"query": {expr}, "start": {stamp(from)}, "end": {stamp(time.Now())}, "step": {interval.String()}}
	var r result
	if err := p.get(ctx, "/api/v1/query_range", params, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	var all []Series
	for _, found := range r.Result {
		s := Series{Labels: found.Metric}
		for _, sample := range found.Values {
			v, err := number(sample)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", expr, err)
			}
			s.Values = append(s.Values, v)
		}
		for range found.Histograms {
			s.Values = append(s.Values, 1)
		}
		all = append(all, s)
	}
	return all, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

func number(sample [2]any) (float64, error) {
	text, _ := sample[1].(string)
	return strconv.ParseFloat(text, 64)
}

// Alert that fires.
type Alert struct {
	Name, Pool  string
	Annotations map[string]string
}

// Firing returns the alerts that fire.
func (p *Prometheus) Firing(ctx context.Context) ([]Alert, error) {
	var all struct {
		Alerts []struct {
			Labels, Annotations map[string]string
			State               string
		}
	}
	if err := p.get(ctx, "/api/v1/alerts", nil, &all); err != nil {
		return nil, err
	}
	var firing []Alert
	for _, a := range all.Alerts {
		if a.State == "firing" {
			firing = append(firing, Alert{Name: a.Labels["alertname"], Pool: a.Labels["pool"], Annotations: a.Annotations})
		}
	}
	return firing, nil
}
