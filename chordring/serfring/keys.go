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
	if err := a.CheckKeys(keys); err != nil {
		return err
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

// CheckKeys returns the error of a SetKeys, and changes nothing.
func (a *Agent) CheckKeys(keys [][]byte) error {
	if a.keyring == nil || len(keys) == 0 {
		return fmt.Errorf("%w: encryption of gossip begins and ends with the process", errConfig)
	}
	next := a.config
	next.Keys = keys
	return next.Validate()
}
