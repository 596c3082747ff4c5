package transport

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/kgate/kgate/internal/transport/wire"
)

// question is a call or a payload of the other end, from when it is complete until it is answered.
type question struct {
	*wire.Question
	s      *session
	link   *link           // of the connection when it was complete; may be nil
	ctx    context.Context // ends with the connection, or when the other end gives it up
	cancel context.CancelFunc
}

// questions are those of one process that are not answered yet. Some outlast their connection: who
// answers them need not look at the ctx. So what bounds them for each connection bounds them here
// for all connections together. The process's lock guards them.
type questions struct {
	count, bytes int
	payloads     []*question // those that wait for their turn
	taking       bool        // a goroutine hands them on
}

// admit makes room for a question, or has it answered that there is none. Once it has set User, the
// end of the connection is the end of the question. It is called under the process's lock.
func (s *session) admit(l *link, q *wire.Question) {
	open := &s.p.questions
	if open.count >= wire.MaxQuestions || open.bytes+len(q.Body) > wire.MaxQuestionBytes {
		s.wire.Answer(q, wire.StatusBusy, nil)
		return
	}
	if open.count++; open.count == 1 {
		s.p.t.stay(s.p)
	}
	open.bytes += len(q.Body)
	ctx, cancel := context.WithCancel(s.p.t.ctx)
	q.User = &question{Question: q, s: s, link: l, ctx: ctx, cancel: cancel}
}

// asked has a question answered, unless its connection has ended meanwhile.
func (s *session) asked(q *question) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != s {
		p.forget(q)
		return
	}
	if strings.HasPrefix(q.Name, payloadName) {
		p.questions.payloads = append(p.questions.payloads, q)
		if !p.questions.taking {
			p.questions.taking = true
			p.t.wg.Go(p.takePayloads)
		}
		return
	}
	p.t.wg.Go(func() {
		data, err := []byte(nil), ErrUnknownCall
		name, ours := strings.CutPrefix(q.Name, callName)
		if f := p.t.config.Answer; ours && f != nil {
			data, err = f(q.ctx, s.from, name, q.Body)
		}
		s.answer(q, data, err)
	})
}

// takePayloads hands on the payloads that wait, one after the other.
func (p *process) takePayloads() {
	for {
		p.mu.Lock()
		waiting := p.questions.payloads
		if len(waiting) == 0 {
			p.questions.taking = false
			p.mu.Unlock()
			return
		}
		q := waiting[0]
		p.questions.payloads = slices.Delete(waiting, 0, 1)
		p.mu.Unlock()
		err := q.ctx.Err() // nobody waits for the answer any more
		if err == nil {
			err = p.takePayload(q)
		}
		q.s.answer(q, nil, err)
	}
}

// takePayload hands on a payload.
func (p *process) takePayload(q *question) error {
	t, l := p.t, q.link
	if l == nil || l.dropped.Load() {
		return ErrNotTaken
	}
	topic, err := strings.TrimPrefix(q.Name, payloadName), ErrNotTaken
	if f := t.config.Receive; f != nil {
		err = f(l.node, topic, q.Body)
	}
	if err != nil && !errors.Is(err, ErrNotYet) {
		t.refusals.add(CauseHandler, err, slog.Uint64("peer_node", uint64(l.node)), slog.String("peer", p.name),
			slog.String("topic", topic), slog.Int("bytes", len(q.Body)))
	}
	return err
}

// answer sends the answer to a question.
func (s *session) answer(q *question, data []byte, err error) {
	status := wire.StatusOK
	switch {
	case errors.Is(err, ErrUnknownCall):
		status, data = wire.StatusUnknown, nil
	case err != nil:
		status, data = wire.StatusFailed, []byte(err.Error())
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.forget(q)
	if s.p.session == s && s.p.t.ctx.Err() == nil { // the end of this gateway is no answer
		s.wire.Answer(q.Question, status, data)
		s.flushSoon(false)
	}
}
