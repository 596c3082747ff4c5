// Package foreign holds the gateway against what others hold their servers against: the cases of
// llhttp (Node's parser) and of Http11Probe. The same bytes go to the gateway, nginx and HAProxy.
//
// The cases are fetched when the tests run, and none is kept here: from GitHub, or from the
// repositories that KGATE_LLHTTP and KGATE_HTTP11PROBE name, in any form that git clones. The tests
// are skipped without KGATE_FOREIGN=1, and where something is missing.
package foreign
