// Package browser tests the status page in a real browser, headless Chromium, in
// front of real gateways: what an operator sees when slots fill up, somebody waits
// and leaves, a gateway is killed; that it asks no other host for anything and has
// no error in its console; and that it can be used by keyboard and with a screen
// reader, as far as axe-core can tell.
//
// In make soak it draws the dashboard of configs/grafana, too: with Grafana's own components
// (@grafana/ui and @grafana/data, 600 MB from npm), on what a Prometheus scrapes from a fleet at
// work. grafana/draw.jsx says which parts of a dashboard they lack.
//
// It needs the Debian package chromium, and axe-core from npm, see tools/test-tools.sh; without
// them the tests that use them are skipped. Screenshots go to
// the directory that $KGATE_ARTIFACTS names, if it does.
package browser
