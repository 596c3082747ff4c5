package prom

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kgate/kgate/internal/admission"
	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/telemetry"
)

type fixedSource telemetry.State

func (s fixedSource) State() telemetry.State { return telemetry.State(s) }

func newMetrics(t testing.TB, now func() time.Time) (*telemetry.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	m, err := New(reg, Config{Config: telemetry.Config{Version: "1.2.3", Revision: "abc", Now: now}})
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// values gathers every sample as name{label="value",...} -> value; for
// histograms the count and sum.
func values(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += fmt.Sprintf(",%s=%s", l.GetName(), l.GetValue())
			}
			switch {
			case m.GetCounter() != nil:
				got[key] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				got[key] = m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				got[key+",count"] = float64(m.GetHistogram().GetSampleCount())
				got[key+",sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return got
}

func expect(t *testing.T, got map[string]float64, want map[string]float64) {
	t.Helper()
	for key, w := range want {
		if g, ok := got[key]; !ok || math.Abs(g-w) > 1e-9 {
			t.Errorf("%s = %v (present: %v), want %v", key, g, ok, w)
		}
	}
}

// countEverything calls each method once or more.
func countEverything(m *telemetry.Metrics) {
	p := m.AddPool("a")
	p.Outcome(admission.OutcomeAdmitted)
	p.Outcome(admission.OutcomeAdmitted)
	p.Outcome(admission.QueueFull.Outcome())
	p.Outcome("no such outcome")
	p.Admitted(time.Now(), 20*time.Millisecond, "")
	p.Admitted(time.Now(), 40*time.Millisecond, "")
	p.Refused(admission.Timeout.Outcome(), 3*time.Second)
	p.Refused(admission.QueueFull.Outcome(), time.Second)
	p.Answered(200, 10, 20)
	p.Answered(777, 1, 2)
	p.Retried(2)
	p.Connected(1, 3)
	p.Slots(time.Now(), 1)
	p.Slots(time.Now(), 0)
	p.Hold(2 * time.Second)
	p.Upstream(time.Second)
	p.AddUpstream("http://10.0.1.1:80").Ended(telemetry.ResultDial, 0)
	p.AddUpstream("http://10.0.1.1:80").Ended(telemetry.ResultOf(503), time.Second)
	p.Sent(kmutex.KindBaton)
	p.Received(kmutex.KindToken)
	p.Received(200)
	p.BatonMoved()
	p.Overtaken()
	p.Recovered("loss")
	p.AuditFailed()
	m.LeaseLost()
	m.LeaderChanged()
	m.DiskWrite(telemetry.DiskRaft, 5*time.Millisecond)
	m.Committed(7 * time.Millisecond)
	m.RecoveryTook(20 * time.Millisecond)
	m.BatchSize(7)
	m.Hops(3)
	m.Refused("bad_frame")
	m.Refused("Foreign\nWords")
	m.SpansSent(3, true)
	m.SpansSent(2, false)
	full := telemetry.NewQueued(io.Discard)
	full.Close(time.Minute)
	_, _ = io.WriteString(full, "one\ntwo\n")
	m.CountDropped(telemetry.LogAccess, full)
	m.SetSource(fixedSource{
		Leader: true, Voter: true, Voters: 3, LossesTolerated: 1, ClientConnections: 12, DiskSize: 4096, DiskFree: 1024, Reloaded: time.Unix(1_800_000_000, 0),
		Peers:        map[string]telemetry.PeerState{"gw-2": {Up: true, RTT: 2 * time.Millisecond}},
		Certificates: map[string]time.Time{"peers": time.Unix(2_000_000_000, 0), "clients": time.Unix(1_900_000_000, 0)},
		View:         9, Members: map[string]int{"alive": 3, "suspended": 1, "lost": 1}, Lease: 2500 * time.Millisecond,
		ReplicaLag: map[string]int{"gw-2": 3},
		Pools: []telemetry.PoolState{{
			Name: "a", Capacity: 8, InFlight: 5, Waiting: 4, Oldest: 90 * time.Second, QueueLimit: 100, TicketsWaiting: 1, TicketsHolding: 2, Baton: 30000000007,
			TokensRunning: 5, TokensFree: 1, TokensWithheld: 2,
			Rates:      map[string]telemetry.RateState{telemetry.Down: {Limit: 50 << 20, Share: 1000.5, Moved: 900}, telemetry.Up: {Limit: 1 << 20}},
			Configured: 9, OldestHold: 3 * time.Second, Sharing: &telemetry.SharingState{Clients: 12, MostSlots: 2.5},
			Upstreams: map[string]telemetry.UpstreamState{"http://10.0.1.1:80": {Healthy: true, InFlight: 5, Quiet: 2 * time.Second, Answered: time.Now(), K: new(6), SlotsInUse: 4}, "http://10.0.1.2:80": {}},
		}},
	})
}

func TestCounts(t *testing.T) {
	m, reg := newMetrics(t, nil)
	countEverything(m)
	expect(t, values(t, reg), map[string]float64{
		"kgate_requests_total,outcome=admitted,pool=a":                                 2,
		"kgate_requests_total,outcome=queue_full,pool=a":                               1,
		"kgate_requests_total,outcome=timeout,pool=a":                                  0,
		"kgate_requests_total,outcome=other,pool=a":                                    1,
		"kgate_wait_time_seconds,outcome=admitted,pool=a,count":                        2,
		"kgate_wait_time_seconds,outcome=admitted,pool=a,sum":                          .06,
		"kgate_window_longest_wait_seconds,pool=a":                                     .04,
		"kgate_window_wait_seconds,pool=a":                                             .06,
		"kgate_window_admissions,pool=a":                                               2,
		"kgate_hold_time_seconds,pool=a,sum":                                           2,
		"kgate_upstream_response_seconds,pool=a,sum":                                   1,
		"kgate_upstream_requests_total,pool=a,result=dial,upstream=http://10.0.1.1:80": 1,
		"kgate_upstream_requests_total,pool=a,result=5xx,upstream=http://10.0.1.1:80":  1,
		"kgate_upstream_in_flight,pool=a,upstream=http://10.0.1.1:80":                  5,
		"kgate_upstream_quiet_seconds,pool=a,upstream=http://10.0.1.1:80":              2,
		"kgate_clients,pool=a":                                                         12,
		"kgate_client_most_slots,pool=a":                                               2.5,
		"kgate_oldest_hold_seconds,pool=a":                                             3,
		"kgate_pool_configured_capacity,pool=a":                                        9,
		"kgate_data_dir_free_bytes":                                                    1024,
		"kgate_data_dir_size_bytes":                                                    4096,
		"kgate_messages_total,direction=sent,pool=a,type=baton":                        1,
		"kgate_messages_total,direction=received,pool=a,type=baton":                    0,
		"kgate_messages_total,direction=received,pool=a,type=token":                    1,
		"kgate_messages_total,direction=received,pool=a,type=other":                    1,
		"kgate_baton_moves_total,pool=a":                                               1,
		"kgate_inversions_total,pool=a":                                                1,
		"kgate_trace_spans_total,result=taken":                                         3,
		"kgate_trace_spans_total,result=lost":                                          2,
		"kgate_replica_lag,successor=gw-2":                                             3,
		"kgate_log_lines_dropped_total,log=access":                                     2,
		"kgate_log_lines_dropped_total,log=process":                                    0,
		"kgate_upstream_healthy,pool=a,upstream=http://10.0.1.1:80":                    1,
		"kgate_upstream_healthy,pool=a,upstream=http://10.0.1.2:80":                    0,
		"kgate_message_batch_size,sum":                                                 7,
		"kgate_request_hops,sum":                                                       3,
		"kgate_peer_refused_total,cause=bad_frame":                                     1,
		"kgate_peer_refused_total,cause=other":                                         1,
		"kgate_view_epoch":                                                             9,
		"kgate_members,status=alive":                                                   3,
		"kgate_members,status=suspended":                                               1,
		"kgate_pool_capacity,pool=a":                                                   8,
		"kgate_in_flight,pool=a":                                                       5,
		"kgate_waiting,pool=a":                                                         4,
		"kgate_baton_number,pool=a":                                                    30000000007,
		"kgate_oldest_wait_seconds,pool=a":                                             90,
		"kgate_admissions_total,pool=a":                                                1,
		"kgate_queue_limit,pool=a":                                                     100,
		"kgate_tickets,pool=a,state=waiting":                                           1,
		"kgate_tickets,pool=a,state=holding":                                           2,
		"kgate_wait_time_seconds,outcome=timeout,pool=a,sum":                           3,
		"kgate_wait_time_seconds,outcome=client_gone,pool=a,count":                     0,
		"kgate_responses_total,code=200,pool=a":                                        1,
		"kgate_responses_total,code=503,pool=a":                                        0,
		"kgate_responses_total,code=other,pool=a":                                      1,
		"kgate_request_bytes_total,pool=a":                                             11,
		"kgate_response_bytes_total,pool=a":                                            22,
		"kgate_upstream_retries_total,pool=a":                                          2,
		"kgate_upstream_connections_total,connection=new,pool=a":                       1,
		"kgate_upstream_connections_total,connection=reused,pool=a":                    3,
		"kgate_recoveries_total,pool=a,reason=loss":                                    1,
		"kgate_recoveries_total,pool=a,reason=leave":                                   0,
		"kgate_leader":                                         1,
		"kgate_voters":                                         3,
		"kgate_voter":                                          1,
		"kgate_losses_tolerated":                               1,
		"kgate_leader_changes_total":                           1,
		"kgate_peer_link_up,peer=gw-2":                         1,
		"kgate_peer_rtt_seconds,peer=gw-2":                     .002,
		"kgate_draining":                                       0,
		"kgate_client_connections":                             12,
		"kgate_config_last_reload_successful":                  1,
		"kgate_certificate_expiry_timestamp_seconds,use=peers": 2000000000,
		"kgate_disk_write_seconds,what=raft,sum":               .005,
		"kgate_commit_seconds,sum":                             .007,
		"kgate_tokens,pool=a,state=running":                    5,
		"kgate_tokens,pool=a,state=free":                       1,
	})
}

// TestClassicAndNativeBuckets: scrapers of either kind find their histogram.
func TestClassicAndNativeBuckets(t *testing.T) {
	m, reg := newMetrics(t, nil)
	p := m.AddPool("a")
	p.Admitted(time.Now(), 3*time.Millisecond, "")
	p.Hold(3 * time.Millisecond)
	p.Upstream(3 * time.Millisecond)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		switch f.GetName() {
		case "kgate_wait_time_seconds", "kgate_hold_time_seconds", "kgate_upstream_response_seconds":
		default:
			continue
		}
		found++
		h := f.GetMetric()[0].GetHistogram()
		bounds := h.GetBucket()
		if n := len(bounds); bounds[0].GetUpperBound() != .00005 || bounds[n-1].GetUpperBound() != 7200 {
			t.Errorf("%s: classic buckets from %v to %v", f.GetName(), bounds[0], bounds[n-1])
		}
		if len(h.GetPositiveSpan()) == 0 {
			t.Errorf("%s: no native buckets", f.GetName())
		}
	}
	if found != 3 {
		t.Errorf("%d histograms of times", found)
	}
}

// TestEdgesKeepAway: no default timeout is close to an edge of a bucket, and each is near the middle
// of its own bucket: a quantile of many such times is off by at most a sixth.
func TestEdgesKeepAway(t *testing.T) {
	for _, cut := range []float64{1, 3, 5, 10, 30, 60, 120, 300, 600} {
		i, _ := slices.BinarySearch(timeBuckets, cut)
		low, high := timeBuckets[i-1], timeBuckets[i]
		if middle := (low + high) / 2; low > .95*cut || high < 1.05*cut || math.Abs(middle-cut) > cut/6 {
			t.Errorf("%v s is in the bucket from %v to %v", cut, low, high)
		}
	}
}

// TestSlotSeconds: whenever it is read, the sum is exact.
func TestSlotSeconds(t *testing.T) {
	now := time.Now()
	m, reg := newMetrics(t, func() time.Time { return now })
	p := m.AddPool("a")
	want := 0.0
	for _, step := range []struct {
		inUse int
		lasts time.Duration
	}{{2, 1500 * time.Millisecond}, {6, 250 * time.Millisecond}, {0, time.Hour}, {3, 2 * time.Second}} {
		p.Slots(now, step.inUse)
		now = now.Add(step.lasts)
		want += float64(step.inUse) * step.lasts.Seconds()
		expect(t, values(t, reg), map[string]float64{"kgate_slot_seconds_total,pool=a": want})
	}
}

// TestCreated: every counter and histogram says since when it counts.
func TestCreated(t *testing.T) {
	m, reg := newMetrics(t, nil)
	countEverything(m)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			if strings.HasPrefix(f.GetName(), "kgate_") &&
				(metric.GetCounter() != nil && metric.GetCounter().GetCreatedTimestamp() == nil ||
					metric.GetHistogram() != nil && metric.GetHistogram().GetCreatedTimestamp() == nil) {
				t.Errorf("%s does not say since when", f.GetName())
			}
		}
	}
}

// TestGatewayLabel: every series names its gateway.
func TestGatewayLabel(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m, err := New(reg, Config{Gateway: "gw-1"})
	if err != nil {
		t.Fatal(err)
	}
	m.AddRefusalCause("bad_cause")
	countEverything(m)
	got := values(t, reg)
	if v, ok := got["kgate_peer_refused_total,cause=bad_cause,gateway=gw-1"]; !ok || v != 0 {
		t.Errorf("a cause that has not come up: %v, there %t", v, ok)
	}
	for key := range got {
		if !strings.Contains(key, ",gateway=gw-1") {
			t.Errorf("%s does not", key)
		}
	}
	if v, ok := got["kgate_peer_refused_total,cause=bad_frame,gateway=gw-1"]; !ok || v != 1 {
		t.Errorf("bad_frame: %v", v)
	}
}

// TestExemplar: a wait whose trace is recorded names it, at either kind of
// buckets; the others name none.
func TestExemplar(t *testing.T) {
	m, reg := newMetrics(t, nil)
	p := m.AddPool("a")
	p.Admitted(time.Now(), 3*time.Millisecond, "")
	p.Admitted(time.Now(), 70*time.Millisecond, "0af7651916cd43dd8448eb211c80319c")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kgate_wait_time_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		for _, b := range h.GetBucket() {
			switch e := b.GetExemplar(); {
			case b.GetUpperBound() == .1 && (e.GetValue() != .07 || e.GetLabel()[0].GetValue() != "0af7651916cd43dd8448eb211c80319c"):
				t.Errorf("bucket up to %v has %v", b.GetUpperBound(), e)
			case b.GetUpperBound() != .1 && e != nil:
				t.Errorf("bucket up to %v has %v", b.GetUpperBound(), e)
			}
		}
		if n := len(h.GetExemplars()); n != 1 {
			t.Errorf("%d exemplars at the native buckets", n)
		}
	}
}

// TestLabelsAreBounded: no client or peer makes new time series.
func TestLabelsAreBounded(t *testing.T) {
	m, reg := newMetrics(t, nil)
	p := m.AddPool("a")
	before := len(values(t, reg))
	var word [3]byte
	for i := range 2000 {
		for j := range word {
			word[j] = 'a' + byte(i>>(j*4)&15)
		}
		m.Refused(string(word[:]))
		m.Refused(fmt.Sprint("cause ", i))
		p.Outcome(admission.Outcome(fmt.Sprint(i)))
		p.Received(kmutex.Kind(i % 256))
		m.Pool(fmt.Sprint(i)).Admitted(time.Now(), time.Second, "")
		p.Refused(admission.Outcome(fmt.Sprint(i)), time.Second)
		p.Answered(i, 0, 0)
	}
	got := values(t, reg)
	const maxCauses = 32
	if more := len(got) - before; more > maxCauses {
		t.Errorf("%d new series, want at most %d", more, maxCauses)
	}
	sum := 0.0
	for key, v := range got {
		if len(key) > len("kgate_peer_refused_total") && key[:len("kgate_peer_refused_total")] == "kgate_peer_refused_total" {
			sum += v
		}
	}
	if sum != 4000 {
		t.Errorf("%v refusals counted, want 4000", sum)
	}
}

// TestUnprintableStatus: values in the agreed view may fail a scrape, never the process.
func TestUnprintableStatus(t *testing.T) {
	m, reg := newMetrics(t, nil)
	m.SetSource(fixedSource{Members: map[string]int{"\xff": 1, "active": 2}})
	families, err := reg.Gather()
	if err == nil || len(families) == 0 {
		t.Errorf("%d families, %v; want the others and an error", len(families), err)
	}
}

func TestPools(t *testing.T) {
	m, reg := newMetrics(t, nil)
	unknown := m.Pool("a")
	p := m.AddPool("a")
	if m.AddPool("a") != p || m.Pool("a") != p {
		t.Error("not the same handle")
	}
	ours := func() map[string]float64 {
		all := values(t, reg)
		maps.DeleteFunc(all, func(key string, _ float64) bool { return !strings.HasPrefix(key, "kgate_") })
		return all
	}
	before := ours()
	unknown.Outcome(admission.OutcomeAdmitted)
	unknown.Admitted(time.Now(), 1, "")
	unknown.Answered(200, 1, 1)
	unknown.Slots(time.Now(), 1)
	unknown.Hold(1)
	unknown.AddUpstream("u").Ended(telemetry.Result2xx, 1)
	unknown.Sent(kmutex.KindBaton)
	if !maps.Equal(ours(), before) {
		t.Error("a metric shows a pool that was not added")
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(nil, Config{}); !errors.Is(err, errNoRegistry) {
		t.Errorf("no registry: %v", err)
	}
	reg := prometheus.NewRegistry()
	if _, err := New(reg, Config{}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(reg, Config{}); err == nil {
		t.Error("the same registry twice")
	}
}

// TestConcurrentCounting is for the race detector, and loses no count.
func TestConcurrentCounting(t *testing.T) {
	m, reg := newMetrics(t, nil)
	countEverything(m)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				p := m.AddPool("b")
				p.Admitted(time.Now(), time.Millisecond, "")
				p.Outcome(admission.OutcomeAdmitted)
				m.Refused("cause")
				m.Pool("b").Window()
			}
		})
	}
	wg.Go(func() {
		for range 20 {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	expect(t, values(t, reg), map[string]float64{
		"kgate_requests_total,outcome=admitted,pool=b": 1000,
		"kgate_window_admissions,pool=b":               1000,
		"kgate_peer_refused_total,cause=cause":         1000,
	})
}

// TestHotPathAllocatesNothing: counting must not feed the garbage collector.
func TestHotPathAllocatesNothing(t *testing.T) {
	m, _ := newMetrics(t, nil)
	p := m.AddPool("a")
	m.Refused("cause")
	if n := testing.AllocsPerRun(1000, func() { hotPath(m, p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func hotPath(m *telemetry.Metrics, p *telemetry.Pool) {
	p.Outcome(admission.OutcomeAdmitted)
	p.Admitted(time.Now(), time.Millisecond, "")
	p.Hold(time.Millisecond)
	p.Slots(time.Time{}, 3)
	p.Answered(200, 1, 2)
	p.Upstream(time.Millisecond)
	p.Sent(kmutex.KindRequest)
	p.Received(kmutex.KindBaton)
	p.BatonMoved()
	m.Pool("a").Outcome(admission.Timeout.Outcome())
	m.BatchSize(3)
	m.Hops(1)
	m.Refused("cause")
}

func BenchmarkRequest(b *testing.B) {
	m, _ := newMetrics(b, nil)
	p := m.AddPool("a")
	b.ReportAllocs()
	for b.Loop() {
		p.Admitted(time.Now(), time.Millisecond, "")
		p.Outcome(admission.OutcomeAdmitted)
		p.Hold(time.Millisecond)
	}
}
