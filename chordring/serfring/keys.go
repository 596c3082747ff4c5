package serfring

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// SetKeys replaces the keys of a gossip that is encrypted: from now on the first
// encrypts and any of them decrypts. Gateways that share no key cannot hear each
// other, so a key is replaced in three steps, each on every gateway before the
// next: the new key second, the new key first, the old key gone. It cannot be
// used to begin or to end encryption.
func (a *Agent) SetKeys(keys [][]byte) error {
	next := a.config
	next.Keys = keys
	switch {
	case a.keyring == nil || len(keys) == 0:
		return fmt.Errorf("%w: encryption of gossip begins and ends with the process", errConfig)
	case next.Validate() != nil:
		return next.Validate()
	}
	// The order keeps a usable key in place at every moment.
	var errs []error
	for _, key := range keys {
		errs = append(errs, a.keyring.AddKey(key))
	}
	errs = append(errs, a.keyring.UseKey(keys[0]))
	for _, old := range a.keyring.GetKeys() {
		if !slices.ContainsFunc(keys, func(key []byte) bool { return bytes.Equal(key, old) }) {
			errs = append(errs, a.keyring.RemoveKey(old))
		}
	}
	return errors.Join(errs...)
}
