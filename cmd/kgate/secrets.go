package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// readTokens reads the tokens that changes over the admin address require, one on
// each line; nil if no file is named. The first proves changes to other gateways, all are
// accepted. It waits for a file that is still being written.
func readTokens(ctx context.Context, file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	data, err := readSettled(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("node.admin_token_file: %w", err)
	}
	tokens := tokensIn(data)
	const least = 16
	for _, token := range tokens {
		if len(token) < least {
			return nil, fmt.Errorf("node.admin_token_file: %s holds a token of %d characters, and %d are the least: make one with `kgate keygen --token`", file, len(token), least)
		}
		if isCut(token) {
			return nil, fmt.Errorf("node.admin_token_file: %s holds only a part of a token of kgate keygen: copy the whole token", file)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("node.admin_token_file: %s holds no token: make one with `kgate keygen --token`", file)
	}
	return tokens, nil
}

// settleTime is how long a file must be unchanged before a last line without a line break
// counts.
const settleTime = 2 * time.Second

// readSettled reads a file of lines. It waits while the last line has no line break and the
// file has just been written, and fails if that goes on or ctx ends. The time of day
// may be wrong: a file also counts that has not changed while it waited.
func readSettled(ctx context.Context, file string) ([]byte, error) {
	var last time.Time
	for range 3 {
		info, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		data, err := os.ReadFile(file)
		written := info.ModTime()
		if err != nil || bytes.HasSuffix(data, []byte("\n")) || time.Since(written) >= settleTime || written.Equal(last) {
			return data, err
		}
		last = written
		select {
		case <-time.After(settleTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%s is still being written: its last line has no line break", file)
}

// tokenPrefix begins the tokens that kgate makes. They end with a checksum, so that a
// part of one is recognized.
const tokenPrefix = "kgate-"

func newToken() string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	token := tokenPrefix + hex.EncodeToString(secret)
	return token + tokenSum(token)
}

func tokenSum(token string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(token))) }

// isCut reports whether token is only a part of a token that newToken made.
func isCut(token string) bool {
	end := len(token) - len(tokenSum(""))
	return strings.HasPrefix(token, tokenPrefix) && tokenSum(token[:end]) != token[end:]
}

// tokensIn returns the lines of a file that are not empty.
func tokensIn(data []byte) []string {
	var tokens []string
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" {
			tokens = append(tokens, line)
		}
	}
	return tokens
}

// refreshTokens takes the admin tokens of the file into use, if it is valid.
func (s *server) refreshTokens(ctx context.Context) {
	tokens, err := readTokens(ctx, s.cfg.Node.AdminTokenFile)
	settled := slices.Equal(tokens, s.lastTokens) // see trustInterval
	s.lastTokens = tokens
	switch before := s.adminTokens(); {
	case ctx.Err() != nil:
	case err != nil:
		if s.once.First("admin token " + err.Error()) {
			s.log.Error("the admin tokens cannot be read: keeping the last good ones", slog.Any("error", err))
		}
	case settled && !slices.Equal(tokens, before):
		s.tokens.Store(&tokens)
		s.log.Info("admin tokens read again", slog.Int("tokens", len(tokens)))
	}
}

// adminTokens returns the tokens that are accepted now.
func (s *server) adminTokens() []string {
	if tokens := s.tokens.Load(); tokens != nil {
		return *tokens
	}
	return nil
}

// warnOfOpenPorts logs what cluster.insecure leaves open.
func (s *server) warnOfOpenPorts() {
	if !s.cfg.Cluster.Insecure || s.trust.secure != nil {
		return
	}
	peer, _ := s.cfg.ForPeers()
	s.log.Warn("cluster.insecure: anybody who can reach this address can read and change k, take slots and act as a gateway",
		slog.String("peer", peer), slog.String("remedy", "make a key with kgate keygen and set cluster.key_file"))
}

// warnOfOpenSecrets logs which files with secrets other users of this machine can read.
// Their group may: services often get root's files that way.
func (s *server) warnOfOpenSecrets() {
	c := s.cfg
	for _, f := range []struct{ key, path string }{
		{"node.admin_token_file", c.Node.AdminTokenFile},
		{"cluster.key_file", c.Cluster.KeyFile},
		{"cluster.tls.key", c.Cluster.TLS.Key},
		{"listen.tls.key", c.Listen.TLS.Key},
	} {
		if f.path == "" || runtime.GOOS == "windows" {
			continue
		}
		info, err := os.Stat(f.path)
		if err != nil {
			continue // reading it fails with an error
		}
		if mode := info.Mode().Perm(); mode&0o027 != 0 {
			s.log.Warn("other users of this machine can read a file with a secret: chmod 600 it",
				slog.String("key", f.key), slog.String("file", f.path), slog.String("mode", fmt.Sprintf("%04o", mode)))
		}
	}
}
