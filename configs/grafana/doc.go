// Package grafana is the source of dashboards/kgate.json: what a fleet of gateways
// shows in Grafana, one pool at a time.
//
// The dashboard is written here, as a table of panels, and not in Grafana: so a
// change of it can be read and reviewed. After a change:
//
//	go test ./configs/grafana -update
//
// # Model
//
// panels.go says what is shown: rows, their panels, each panel's queries and what
// it tells. layout.go turns that into the document that Grafana (10 or later)
// reads. The dashboard asks metrics only, so it works without the recording rules,
// and has no data source of its own: it is one of its variables. The others are the
// fleet (the scrape job), the pool, and the gateways (the scraped instances).
//
// test/prometheus asks a real Prometheus that scrapes real gateways for every
// query in it.
package grafana
