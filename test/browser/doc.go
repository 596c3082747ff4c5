// Package browser tests the status page in a real browser, headless Chromium, in
// front of real gateways: what an operator sees when slots fill up, somebody waits
// and leaves, a gateway is killed; that it asks no other host for anything and has
// no error in its console; and that it can be used by keyboard and with a screen
// reader, as far as axe-core can tell.
//
// It needs the Debian package chromium. Axe-core comes from npm, see
// tools/test-tools.sh; without it that one test is skipped. Screenshots go to
// the directory that $KGATE_ARTIFACTS names, if it does.
package browser
