package pool

import (
	"encoding/json"
	"fmt"

	"github.com/kgate/kgate/kmutex"
)

// ParseLetter reads the JSON of a letter from another gateway, and checks it. It can take
// long, and needs no lock: [Pool.Take] relies on it.
//
// Fields that are not known here are left out: another version may send them.
func ParseLetter(from kmutex.Node, data []byte) (*Letter, error) {
	l := new(Letter)
	err := json.Unmarshal(data, l)
	if err == nil {
		err = l.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: of node %d: %w", errLetter, from, err)
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
