// Package foreign holds the gateway against what others hold their servers against, with nginx and
// HAProxy beside it: the cases of llhttp (Node's parser) and of Http11Probe, those of http-cache-tests,
// and cases of ours that varnishtest runs (testdata/vtc).
//
// What is not ours is fetched when the tests run, and none of it is kept here: from npm, from GitHub,
// or from the repositories that KGATE_LLHTTP and KGATE_HTTP11PROBE name, in any form that git
// clones. These tests are skipped without KGATE_FOREIGN=1 or KGATE_SOAK=1, and where something
// cannot be had.
package foreign
