package wire

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// MaxBody bounds the body of a call and an answer, what all unfinished long calls of one
	// end may add up to, and so may all answers that wait to be written.
	MaxBody = 64 << 20
	// maxLong bounds the unfinished calls whose body is longer than a frame, and maxShort the
	// others.
	maxLong  = 16
	maxShort = 256
	// MaxQuestions is how many unanswered calls these bounds allow the other end.
	MaxQuestions = maxShort + maxLong
	// MaxQuestionBytes is how many bytes their bodies may have together.
	MaxQuestionBytes = MaxBody + maxShort*fragment
	// mostOfStranger bounds the bytes of a stranger's unanswered calls, and those of the answers
	// that it has not read.
	mostOfStranger = 2 * fragment
	// longOfStranger bounds its one longer call: what 1,500 gateways know of each other.
	longOfStranger = 256 << 10
	// maxWaiting bounds the calls that wait for a place among these.
	maxWaiting = 4096
)

// Status says what became of a call.
type Status uint8

// What can become of a call.
const (
	StatusOK Status = iota
	// StatusFailed: the answer's bytes say why, in words.
	StatusFailed
	// StatusUnknown: nobody answers calls of that name there.
	StatusUnknown
	// StatusBusy: the other end has no room for the answer.
	StatusBusy
	// StatusCanceled: the caller has given up.
	StatusCanceled
	// StatusTooLong: the answer is longer than the caller takes.
	StatusTooLong

	statuses
)

// errCall says that a call cannot be sent: its name or body has a wrong length.
var errCall = errors.New("bad call")

// Call is a question to the other end, with an answer.
type Call struct {
	Name string
	Body []byte // must not change before the call has ended
	// InTurn calls are sent when those of the same name that came before have ended.
	InTurn bool
	// Limit bounds the answer in bytes. 0: one frame.
	Limit int
	// User is the caller's.
	User any

	id        uint64 // 0: it waits
	answering bool   // the answer has begun
	status    Status
	answer    []byte
	missing   int // bytes of the answer
	canceled  bool
}

func (c *Call) long() bool { return len(c.Body) > fragment }

// Question is a call of the other end.
type Question struct {
	Name string
	Body []byte
	// User is the answerer's.
	User any

	id       uint64
	missing  int // bytes of the body
	size     int
	status   Status
	answer   []byte
	answered bool
	canceled bool
}

func (q *Question) long() bool { return q.size > fragment }

// calls are those of one connection, in both directions.
type calls struct {
	lastID, lastTheirs uint64

	// Calls of this end.
	waiting     []*Call
	asked       map[uint64]*Call
	short, long int // of asked
	bytes       int // of the long ones

	// Questions of the other end. A place is free again when the answer is written.
	questions   map[uint64]*Question
	theirShort  int
	shortBytes  int // of their bodies
	theirLong   int
	theirBytes  int
	answers     []*Question // to be written
	answerBytes int
	cancels     []uint64
}

// Call queues a call. It ends with an event, unless the connection ends before.
func (c *Conn) Call(call *Call) error {
	switch {
	case call.Name == "" || len(call.Name) > MaxName:
		return fmt.Errorf("%w: the name has %d bytes, not 1 to %d", errCall, len(call.Name), MaxName)
	case len(call.Body) > MaxBody:
		return fmt.Errorf("%w: the body has %d bytes", errCall, len(call.Body))
	case len(c.waiting) >= maxWaiting:
		return fmt.Errorf("%w: %d calls", ErrFull, len(c.waiting))
	}
	call.id = 0
	call.Limit = max(call.Limit, fragment)
	c.waiting = append(c.waiting, call)
	c.startCalls()
	return nil
}

// Cancel gives up a call. It returns true if the other end has not heard of it; then no event
// follows.
func (c *Conn) Cancel(call *Call) (unsent bool) {
	if i := slices.Index(c.waiting, call); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
		return true
	}
	if c.asked[call.id] == call && !call.canceled {
		call.canceled = true
		c.dropData(call.id)
		c.normal.frames = appendNumbers(c.normal.frames, typeCancel, call.id) // not before the call itself
	}
	return false
}

// startCalls sends the calls that wait and for which there is a place.
func (c *Conn) startCalls() {
	var passed []string // by calls that have to wait for their turn
	longWait := false   // shorter ones must not overtake a long one for ever
	c.waiting = slices.DeleteFunc(c.waiting, func(call *Call) bool {
		switch {
		case call.InTurn && (slices.Contains(passed, call.Name) || c.asks(call.Name)),
			call.long() && (longWait || c.long == maxLong || c.bytes+len(call.Body) > MaxBody),
			!call.long() && c.short == maxShort:
			longWait = longWait || call.long()
			if call.InTurn {
				passed = append(passed, call.Name)
			}
			return false
		}
		c.start(call)
		return true
	})
}

func (c *Conn) asks(name string) bool {
	for _, call := range c.asked {
		if call.InTurn && call.Name == name {
			return true
		}
	}
	return false
}

func (c *Conn) start(call *Call) {
	call.id = c.nextID()
	c.asked[call.id] = call
	c.normal.frames = appendCall(c.normal.frames, call.id, call.Name, call.Body)
	if !call.long() {
		c.short++
		return
	}
	c.long++
	c.bytes += len(call.Body)
	c.data = append(c.data, &source{id: call.id, rest: call.Body})
}

// takeCall takes in a call of the other end.
func (c *Conn) takeCall(f *frame) error {
	if err := c.taken(f.id); err != nil {
		return err
	}
	q := &Question{Name: c.name(f.name), id: f.id, size: f.size}
	if q.long() {
		count, bytes := maxLong, MaxBody
		if c.Stranger {
			count, bytes = 1, longOfStranger
		}
		if c.theirLong >= count || c.theirBytes+q.size > bytes {
			return fmt.Errorf("%w: a call of %d bytes, besides %d with %d bytes", ErrProtocol, q.size, c.theirLong, c.theirBytes)
		}
		c.theirLong++
		c.theirBytes += q.size
		q.missing = q.size
	} else {
		if c.theirShort == maxShort {
			return fmt.Errorf("%w: more than %d calls", ErrProtocol, maxShort)
		}
		if c.Stranger && c.shortBytes+q.size > mostOfStranger {
			return fmt.Errorf("%w: calls of more than %d bytes of a stranger", ErrProtocol, mostOfStranger)
		}
		c.theirShort++
		c.shortBytes += q.size
		q.Body = slices.Clone(f.data)
	}
	c.questions[q.id] = q
	if q.missing == 0 {
		c.event(Event{Kind: Asked, Question: q})
	}
	return nil
}

// Answer answers a question, once. The answer must not change afterwards.
func (c *Conn) Answer(q *Question, status Status, answer []byte) {
	if c.questions[q.id] != q || q.answered {
		return
	}
	most := MaxBody
	if c.Stranger {
		most = mostOfStranger
	}
	if len(answer) > most-c.answerBytes && (!c.Stranger || c.answerBytes > 0) {
		status, answer = StatusBusy, nil
	}
	q.answered, q.status, q.answer = true, status, answer
	c.answerBytes += len(answer)
	c.answers = append(c.answers, q)
}

// takeAnswers appends answers to dst while there is room.
func (c *Conn) takeAnswers(dst []byte, limit int) []byte {
	for len(c.answers) > 0 && (len(dst) == 0 || len(dst)+fragment < limit) {
		q := c.answers[0]
		c.answers = c.answers[1:]
		if q.canceled {
			q.status, c.answerBytes, q.answer = StatusCanceled, c.answerBytes-len(q.answer), nil
		}
		dst = appendAnswer(dst, q.id, q.status, q.answer)
		if len(q.answer) > fragment {
			c.data = append(c.data, &source{id: q.id, rest: q.answer, question: q})
			continue
		}
		c.forget(q)
	}
	return dst
}

// forget ends a question whose answer is written.
func (c *Conn) forget(q *Question) {
	delete(c.questions, q.id)
	c.answerBytes -= len(q.answer)
	if q.long() {
		c.theirLong--
		c.theirBytes -= q.size
	} else {
		c.theirShort--
		c.shortBytes -= q.size
	}
}

// takeAnswer takes in what the other end answers.
func (c *Conn) takeAnswer(f *frame) error {
	call := c.asked[f.id]
	if call == nil || call.answering {
		return fmt.Errorf("%w: an answer to %d", ErrProtocol, f.id)
	}
	call.answering, call.status, call.missing = true, f.status, f.size-len(f.data)
	c.dropData(call.id) // it may have been answered before all of it was there
	switch {
	case f.size > call.Limit && !call.canceled:
		call.status = StatusTooLong
		if call.missing > 0 {
			call.canceled = true
			c.cancels = append(c.cancels, call.id)
		}
	case !call.canceled:
		call.answer = slices.Clone(f.data)
	}
	if call.missing == 0 {
		c.endCall(call)
	}
	return nil
}

// endCall ends a call whose answer is complete.
func (c *Conn) endCall(call *Call) {
	delete(c.asked, call.id)
	if call.long() {
		c.long--
		c.bytes -= len(call.Body)
	} else {
		c.short--
	}
	if call.canceled && call.status != StatusTooLong {
		call.status = StatusCanceled
	}
	c.event(Event{Kind: Answered, Call: call, Status: call.status, Data: call.answer})
	c.startCalls()
}

// grow appends to b, whose whole size is announced: memory grows with what arrives.
func grow(b, part []byte, size int) []byte {
	if need := len(b) + len(part); need > cap(b) {
		b = append(make([]byte, 0, min(size, max(2*cap(b), need))), b...)
	}
	return append(b, part...)
}

func (c *Conn) answerData(call *Call, f *frame) error {
	if !call.answering || len(f.data) == 0 || len(f.data) > call.missing {
		return fmt.Errorf("%w: %d bytes of the answer to %d", ErrProtocol, len(f.data), f.id)
	}
	size := len(call.answer) + call.missing
	call.missing -= len(f.data)
	if !call.canceled {
		call.answer = grow(call.answer, f.data, size)
	}
	if call.missing == 0 {
		c.endCall(call)
	}
	return nil
}

func (c *Conn) bodyData(q *Question, f *frame) error {
	if q.answered {
		return nil // it was given up
	}
	if len(f.data) == 0 || len(f.data) > q.missing {
		return fmt.Errorf("%w: %d bytes of call %d", ErrProtocol, len(f.data), f.id)
	}
	q.missing -= len(f.data)
	q.Body = grow(q.Body, f.data, q.size)
	if q.missing == 0 {
		c.event(Event{Kind: Asked, Question: q})
	}
	return nil
}
