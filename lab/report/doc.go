// Package report shows what experiments have found: CSV and SVG files, and one
// self-contained HTML page with every figure beside the paper's numbers.
//
// [WriteFiles] writes one result's table and plots, writePage the page. The plots
// are drawn here, as plain SVG without script: lines with markers of different
// shapes, error bars of the 95 % confidence intervals, a title with the exact
// numbers on every point, colours that follow the reader's choice of light or
// dark. (A plotting library with its fonts would triple the gateway's binary, which
// the lab is a part of, and draws with fixed colours.)
package report
