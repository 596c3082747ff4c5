package clusterkey

import (
	"bytes"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// size is the length of a key in bytes.
const size = 32

// maxKeys bounds a ring. Replacing a key needs two.
const maxKeys = 8

// errKey is wrapped by every error of [Parse].
var errKey = errors.New("not a cluster key")

// Ring is the keys of one cluster. The zero value has none. It is not changed
// once it is made, and safe for concurrent use.
type Ring struct{ keys [][]byte }

// New returns a new random key as a line of a key file, without the line end.
func New() string {
	key := make([]byte, size)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// Parse reads a key file: a key in base64 on each line. Empty lines and lines
// that begin with # do not count. No error shows any part of a key.
func Parse(text []byte) (Ring, error) {
	var r Ring
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		switch {
		case err != nil:
			return Ring{}, fmt.Errorf("%w: line %d is not base64", errKey, n+1)
		case len(key) != size:
			return Ring{}, fmt.Errorf("%w: line %d holds %d bytes, a key has %d", errKey, n+1, len(key), size)
		case bytes.Equal(key, make([]byte, size)):
			return Ring{}, fmt.Errorf("%w: line %d is all zeros", errKey, n+1)
		case r.has(key):
			return Ring{}, fmt.Errorf("%w: line %d is there twice", errKey, n+1)
		case len(r.keys) == maxKeys:
			return Ring{}, fmt.Errorf("%w: more than %d keys", errKey, maxKeys)
		}
		r.keys = append(r.keys, key)
	}
	if len(r.keys) == 0 {
		return Ring{}, fmt.Errorf("%w: no key in it", errKey)
	}
	return r, nil
}

func (r Ring) has(key []byte) bool {
	for _, k := range r.keys {
		if bytes.Equal(k, key) {
			return true
		}
	}
	return false
}

func derive(key []byte, purpose string) []byte {
	out, err := hkdf.Key(sha256.New, key, nil, purpose, size)
	if err != nil {
		panic("clusterkey: " + err.Error()) // only for lengths that are too long
	}
	return out
}
