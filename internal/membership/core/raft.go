package core

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/kgate/kgate/internal/membership/views"
)

// Raft is go.etcd.io/raft: a machine like this one, which lives inside it. Its timers draw from a
// random source that has no seed, so only a leader's clock is ever advanced: see election.go.
// It asks for writes as messages, and what has to wait for one is held here until it is on
// disk. What it has committed is applied at once.

// storage is where raft reads the log. Snapshots for others are made when they are needed, so that they
// have the newcomer for whom they are.
type storage struct {
	*raft.MemoryStorage
	c *Core
}

func (s storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	hard, conf, err := s.MemoryStorage.InitialState()
	if hard == nil {
		hard = &pb.HardState{}
	}
	return hard, conf, err
}

func (s storage) Snapshot() (*pb.Snapshot, error) { return s.c.snapshot() }

// server is one of raft's, and where it is.
type server struct {
	ID   ID     `json:"id"`
	Name string `json:"name"`
	Addr string `json:"addr"`
}

// snapshotData is the state in a snapshot.
type snapshotData struct {
	Views   json.RawMessage `json:"views"`
	Servers []server        `json:"servers"`
}

func (c *Core) snapshot() (*pb.Snapshot, error) {
	state, err := c.machine.Snapshot()
	if err != nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	data, err := json.Marshal(snapshotData{state, c.servers})
	if err != nil {
		return nil, fmt.Errorf("encode snapshot: %w", err)
	}
	return &pb.Snapshot{Data: data, Metadata: &pb.SnapshotMetadata{
		Index: new(c.applied.Index), Term: new(c.applied.Term), ConfState: proto.Clone(c.conf).(*pb.ConfState),
	}}, nil
}

func (c *Core) takeSnapshot(s *pb.Snapshot) error {
	var d snapshotData
	if err := json.Unmarshal(s.GetData(), &d); err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	if err := c.machine.Restore(d.Views); err != nil {
		return err
	}
	c.servers, c.conf = d.Servers, s.GetMetadata().GetConfState()
	c.applied = Position{s.GetMetadata().GetIndex(), s.GetMetadata().GetTerm()}
	c.snapped = c.applied.Index
	return nil
}

// receiveRaft passes a message on to raft.
func (c *Core) receiveRaft(from ID, said *Hello, m *pb.Message) {
	if ID(m.GetFrom()) != from || ID(m.GetTo()) != c.id || c.left || !c.admits(said) {
		return
	}
	term := c.Term()
	if !c.stored.blank() && m.GetTerm() > term+maxTermStep {
		return // no election has led to it
	}
	switch m.GetType() {
	case pb.MsgVote, pb.MsgPreVote:
		if !c.roll.mayElect(Position{m.GetIndex(), m.GetLogTerm()}) {
			return
		}
	case pb.MsgTimeoutNow:
		if !c.mayStand() {
			return
		}
	case pb.MsgApp:
		if err := c.contradicts(m); m.GetTerm() >= term && err != nil {
			c.fail(err)
			return
		}
	case pb.MsgHeartbeat:
		// A log that has lost its end is behind what its leader knows of it.
		if last, _ := c.stored.log.LastIndex(); m.GetCommit() > last {
			m = proto.Clone(m).(*pb.Message)
			m.Commit = new(last)
		}
	default:
	}
	if err := c.node.Step(m); err != nil {
		return // it is not for this server any more
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		if m.GetTerm() >= term {
			c.election.heard = c.now
		}
	case pb.MsgAppResp, pb.MsgHeartbeatResp:
		// Heartbeats are answered without the disk. It may hang if the end of the log is not there.
		p := c.peers.conns[from]
		if c.l != nil && p != nil && m.GetTerm() == term && (m.GetType() == pb.MsgAppResp || c.hasAll(from)) {
			p.answered = c.now
		}
	default:
	}
}

// ErrContradiction says that what is agreed on here is not so any more.
var ErrContradiction = errors.New("the other gateways have lost what was agreed on")

// contradicts returns an error if a leader's entries are others than those that are agreed on: what was
// agreed on stays, so the others have lost what this process has.
func (c *Core) contradicts(m *pb.Message) error {
	agreed := c.agreed().Index
	other := func(index, term uint64) error {
		have, err := c.stored.log.Term(index)
		if index > agreed || err != nil || have == term { // what a snapshot has is not compared
			return nil
		}
		return fmt.Errorf("%w: entry %d is of term %d at the leader, here of term %d", ErrContradiction, index, term, have)
	}
	err := other(m.GetIndex(), m.GetLogTerm())
	for _, e := range m.GetEntries() {
		err = errors.Join(err, other(e.GetIndex(), e.GetTerm()))
	}
	return err
}

// maxTermStep is by how much a term may be later than this process's own. Each election is one step.
const maxTermStep = 1 << 20

// admits reports that raft may listen to a process: one of the same cluster. A process without a
// log goes with whoever lets it in.
func (c *Core) admits(said *Hello) bool {
	own := c.stored.note.Cluster
	if said.Cluster == "" || said.Cluster != own && !c.stored.blank() {
		return false
	}
	if own != said.Cluster {
		c.stored.note.Cluster, c.stored.note.Founders = said.Cluster, nil
		c.note()
	}
	return true
}

// note writes whose the log is.
func (c *Core) note() {
	record, err := encodeNote(c.stored.note)
	if err != nil {
		c.fail(err)
		return
	}
	c.putWrite(record, nil)
}

// putWrite has a record written, and holds responses until it is.
func (c *Core) putWrite(record []byte, responses []*pb.Message) {
	c.written++
	c.writes = append(c.writes, pendingWrite{c.written, c.now, responses})
	if c.cfg.Durable {
		c.out.Write = append(c.out.Write, Write{c.written, record})
		return
	}
	c.wrote(c.written)
}

// wrote takes in that all writes up to a number are on disk.
func (c *Core) wrote(number uint64) {
	for len(c.writes) > 0 && c.writes[0].number <= number {
		w := c.writes[0]
		c.writes = c.writes[1:]
		if c.cfg.Durable {
			c.pace.note(min(c.now-w.at, c.lease()/4)) // more tells how long the disk hung, not how slow it is
		}
		for _, m := range w.responses {
			c.pass(m)
		}
	}
}

// pass gives a message of raft's to whom it is for.
func (c *Core) pass(m *pb.Message) {
	if ID(m.GetTo()) == c.id {
		_ = c.node.Step(m) // its own, of an earlier term at worst
		return
	}
	c.sendRaft(m)
}

// ready does what raft wants done. It reports whether there was anything.
func (c *Core) ready() bool {
	worked := false
	for c.node.HasReady() {
		worked = true
		rd := c.node.Ready()
		if rd.SoftState != nil {
			c.ledBy(rd.RaftState, ID(rd.Lead))
		}
		for _, s := range rd.ReadStates {
			c.confirmed(s.RequestCtx)
		}
		for _, m := range rd.Messages {
			switch m.GetTo() {
			case raft.LocalAppendThread:
				c.append(m)
			case raft.LocalApplyThread:
				c.apply(m)
			default:
				c.pass(m)
			}
		}
	}
	return worked
}

// append has raft's log written.
func (c *Core) append(m *pb.Message) {
	responses := m.GetResponses()
	kept := &pb.Message{Entries: m.GetEntries(), Term: m.Term, Vote: m.Vote, Commit: m.Commit, Snapshot: m.GetSnapshot()}
	if err := c.stored.append(kept); err != nil {
		c.fail(err)
		return
	}
	if s := m.GetSnapshot(); !raft.IsEmptySnap(s) {
		if err := c.takeSnapshot(s); err != nil {
			c.fail(err)
			return
		}
	}
	record, err := encodeRecord(recordRaft, kept)
	if err != nil {
		c.fail(err)
		return
	}
	c.putWrite(record, responses)
}

// apply takes in what is agreed on.
func (c *Core) apply(m *pb.Message) {
	for _, e := range m.GetEntries() {
		c.applied = Position{e.GetIndex(), e.GetTerm()}
		switch e.GetType() {
		case pb.EntryConfChangeV2:
			cc := new(pb.ConfChangeV2)
			if err := proto.Unmarshal(e.GetData(), cc); err != nil {
				c.fail(fmt.Errorf("entry %d: %w", e.GetIndex(), err))
				return
			}
			c.applyConf(cc, e.GetIndex())
		case pb.EntryNormal:
			if len(e.GetData()) > 0 {
				c.applyCommand(e.GetIndex(), e.GetData())
			}
		default: // it never was proposed
		}
	}
	for _, r := range m.GetResponses() {
		c.pass(r)
	}
	if c.applied.Index >= c.snapped+compactAfter {
		c.compact()
	}
}

// applyConf takes in a change of raft's servers, and the command that comes with it.
func (c *Core) applyConf(cc *pb.ConfChangeV2, index uint64) {
	before := c.conf.GetVoters()
	c.conf = c.node.ApplyConfChange(cc)
	c.out.Voters = true
	data := cc.GetContext()
	if len(data) > entryHeader {
		if cmd, err := views.DecodeCommand(data[entryHeader:]); err == nil && cmd.Join != nil {
			c.addServer(server{serverID(cmd.Join.Server), cmd.Join.Name, cmd.Join.PeerAddr})
		}
	}
	in := c.inConf()
	c.servers = slices.DeleteFunc(c.servers, func(s server) bool { return !in[s.ID] })
	if len(data) > 0 {
		c.applyCommand(index, data)
	}
	if c.l != nil {
		c.l.changing = 0
		c.tellVoters(before)
	}
}

func (c *Core) addServer(s server) {
	c.servers = append(slices.DeleteFunc(slices.Clone(c.servers), func(have server) bool { return have.ID == s.ID }), s)
	slices.SortFunc(c.servers, func(a, b server) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
}

// inConf returns raft's servers, with a vote or without.
func (c *Core) inConf() map[ID]bool {
	in := make(map[ID]bool)
	for _, set := range [][]uint64{c.conf.GetVoters(), c.conf.GetVotersOutgoing(), c.conf.GetLearners(), c.conf.GetLearnersNext()} {
		for _, id := range set {
			in[ID(id)] = true
		}
	}
	return in
}

// entryHeader is how long the head of an entry is: who asked for it, and its tag.
const entryHeader = 16

func encodeEntry(by ID, tag uint64, command []byte) []byte {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, entryHeader+len(command)), uint64(by))
	return append(binary.BigEndian.AppendUint64(data, tag), command...)
}

func (c *Core) applyCommand(index uint64, data []byte) {
	if len(data) < entryHeader {
		c.fail(fmt.Errorf("entry %d has %d bytes", index, len(data)))
		return
	}
	followed := c.machine.Broken() == nil
	_, err := c.machine.Apply(index, data[entryHeader:])
	if broken := c.machine.Broken(); broken != nil && followed {
		c.log(slog.LevelError, "this gateway no longer follows the cluster's views", slog.Any("error", broken), slog.Uint64("index", index),
			slog.String("hint", "run the version of kgate that the other gateways run"))
	}
	if c.l != nil {
		c.l.agreed(c, [entryHeader]byte(data))
		c.takeOut(data)
	}
	if ID(binary.BigEndian.Uint64(data)) == c.id {
		c.answered(binary.BigEndian.Uint64(data[8:]), err)
	}
}

// compact puts a snapshot in the place of the log so far.
func (c *Core) compact() {
	s, err := c.snapshot()
	if err != nil {
		return // the state is of another version
	}
	record, err := encodeRecord(recordCompact, &pb.Message{Snapshot: s})
	if err == nil {
		err = c.stored.compact(s)
	}
	if err != nil {
		c.fail(err)
		return
	}
	c.snapped = s.GetMetadata().GetIndex()
	c.putWrite(record, nil)
}

// sendRaft sends raft's message. Who has no vote needs what is agreed on, and word now and then that the
// leader lives, but not each round: there may be a thousand of them.
func (c *Core) sendRaft(m *pb.Message) {
	to := ID(m.GetTo())
	p := c.peers.conns[to]
	if p == nil {
		if m.GetType() == pb.MsgSnap {
			c.node.ReportSnapshot(uint64(to), raft.SnapshotFailure)
		}
		return
	}
	if m.GetType() == pb.MsgHeartbeatResp && len(c.writes) > 0 && c.now-c.writes[0].at > c.lease() {
		return // it takes in no entries, so a leader must not count on it
	}
	if m.GetType() == pb.MsgHeartbeat && slices.Contains(c.conf.GetLearners(), uint64(to)) {
		if c.now-p.beat < c.pacing()/6 {
			return
		}
		p.beat = c.now
	}
	c.send(to, Message{raft: m})
	if m.GetType() == pb.MsgSnap {
		// It may be lost like any other; then the next heartbeat's answer begins it again.
		c.node.ReportSnapshot(uint64(to), raft.SnapshotFinish)
	}
}

// quiet takes raft's log. What it leads to is logged here; what it calls fatal ends the
// process.
type quiet struct{}

var _ raft.Logger = quiet{}

func (quiet) Debug(...any)            {}
func (quiet) Debugf(string, ...any)   {}
func (quiet) Error(...any)            {}
func (quiet) Errorf(string, ...any)   {}
func (quiet) Info(...any)             {}
func (quiet) Infof(string, ...any)    {}
func (quiet) Warning(...any)          {}
func (quiet) Warningf(string, ...any) {}
func (quiet) Fatal(v ...any)          { panic("membership: raft: " + fmt.Sprint(v...)) }
func (quiet) Fatalf(f string, v ...any) {
	panic("membership: raft: " + fmt.Sprintf(f, v...))
}
func (quiet) Panic(v ...any) { panic("membership: raft: " + fmt.Sprint(v...)) }
func (quiet) Panicf(f string, v ...any) {
	panic("membership: raft: " + fmt.Sprintf(f, v...))
}
