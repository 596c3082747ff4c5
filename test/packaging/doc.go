// Package packaging checks what is made of kgate for others to run: the unit, the
// Debian package's files, the image and the Kubernetes manifests. test/newcomer
// installs the package; tools/dist-again.sh makes everything twice and compares.
package packaging
