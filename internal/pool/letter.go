package pool

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kgate/kgate/kmutex"
	"github.com/kgate/kgate/replication"
)

// Letter is what two gateways' parts of a pool send each other beside the machine's
// messages. One of the pointers is set.
type Letter struct {
	To     kmutex.Node              `json:"-"`
	Report *replication.EpochReport `json:",omitempty"`
	Answer *replication.EpochAnswer `json:",omitempty"`
	Count  *Count                   `json:",omitempty"`
	Tokens *Holdings                `json:",omitempty"`
	Push   *replication.Push        `json:",omitempty"`
	Ack    *replication.Ack         `json:",omitempty"`

	tries     int    // that failed
	unwritten uint64 // the number of the push that it acknowledges and the disk does not have; 0: it has
}

// ParseLetter reads a letter of another gateway from JSON, and checks it: [Pool.Take]
// relies on that. It can take long, and needs no lock.
//
// Unknown fields are ignored: another version may send them.
func ParseLetter(from kmutex.Node, data []byte) (*Letter, error) {
	l := new(Letter)
	err := json.Unmarshal(data, l)
	if err == nil {
		err = l.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w of node %d: %w", errLetter, from, err)
	}
	return l, nil
}

func (l *Letter) validate() error {
	switch {
	case l.Report != nil:
		return l.Report.Validate()
	case l.Answer != nil:
		return l.Answer.Validate()
	case l.Push != nil:
		return l.Push.Validate()
	default:
		return nil
	}
}

// post sends a letter. One to this gateway itself is taken in at the end of the event.
func (p *Pool) post(l Letter) {
	if l.To == p.cfg.Self {
		p.own = append(p.own, l)
	} else {
		p.fx.Letters = append(p.fx.Letters, l)
	}
}

// retry is a letter that is to be sent again.
type retry struct {
	at     time.Duration
	letter Letter
}

// Pauses before a letter is sent again. They double. At first home may just not have the
// view yet.
const (
	retryFirst   = time.Millisecond
	retryLongest = 250 * time.Millisecond
	pushPause    = 100 * time.Millisecond
	// writeWithin bounds how long others wait for this gateway's disk.
	writeWithin = time.Second
)

func (p *Pool) matters(l *Letter) bool {
	switch {
	case l.Report != nil:
		return p.state == Reporting && l.Report.Epoch == p.view.Epoch
	case l.Answer != nil:
		return p.state != Void && l.Answer.Install.Epoch == p.view.Epoch && slices.Contains(p.view.Members, l.To)
	case l.Ack != nil:
		return p.tickets != nil && slices.Contains(p.view.Members, l.To)
	default:
		return false
	}
}

func (p *Pool) retry(now time.Duration) {
	p.again = slices.DeleteFunc(p.again, func(r retry) bool {
		due := now >= r.at
		if due && r.letter.Push != nil {
			p.tickets.replicator.Failed(r.letter.To, r.letter.Push.Seq)
		} else if due && p.matters(&r.letter) {
			p.post(r.letter)
		}
		return due
	})
}

func (p *Pool) nextRetry() time.Duration {
	next := time.Duration(0)
	for _, r := range p.again {
		if next == 0 || r.at < next {
			next = r.at
		}
	}
	return next
}
