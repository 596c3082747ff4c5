// Package raftfile keeps one gateway's share of raft's log in one file: entries,
// term and vote, the newest snapshot, and a note that says whose file it is. The file is
// a journal (package journal): damage is told, and what was acknowledged is there.
//
// What a method has written is on disk when it returns, with one exception: a term may
// wait for [File.Flush], the next entries or the vote, so that an election costs one
// sync. Nothing may be sent to other gateways before Flush; see its comment.
//
// After a write or a sync has failed, every later write fails, and Options.Failed is
// called. An old copy of a whole file is in itself a good file: only others can tell; see
// package membership.
package raftfile
