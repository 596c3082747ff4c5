// Package prometheus holds what operators see to what happens: the dashboard, the
// recording rules and the alerts in configs/ are asked in a real Prometheus that
// scrapes real gateways.
//
// TestFiles checks the files themselves, by promtool and by hand. TestFleet runs
// three gateways and a Prometheus, and shows three things. The spread that
// Prometheus shows is the one that the load measured by itself. Each alert fires
// when its fault is caused, for nothing else, and clears when the fault is over.
// And no query of the dashboard comes back empty. TestComposeUp runs what
// configs/compose.yaml says, without containers and without Grafana.
//
// What takes minutes in alerts.yaml takes seconds here: the test hastens a copy of
// it, in which only times are other. The times themselves are tested by promtool
// (alerts_test.yaml). These have no fault here and are tested by promtool only: KgateStateDiffers
// and KgateTokenAuditFailed, which take a defect of kgate, KgateCertificateExpiring, KgateReloadFailed, KgateDiskFull, and KgateWaitsLong
// and KgateUpstreamSlow, which need an hour to know what is usual. A second Prometheus scrapes native histograms; dashboard and
// rules answer there, too.
//
// All traffic stays on loopback and in namespaces. Needs Debian's package
// prometheus, and TestComposeUp root, as test/netns does.
package prometheus
