package gateway

import (
	"errors"
	"fmt"

	"github.com/kgate/kgate/internal/admission"
)

// ticketReply is the answer of another gateway: a ticket, or why not.
type ticketReply struct {
	Ticket *wireTicket
	Error  string
	Ending admission.Ending
}

// wireTicket is a ticket as it travels between gateways: field by field.
type wireTicket admission.Ticket

// replies name the errors that cross between gateways.
var replies = map[string]error{
	"unknown": admission.ErrUnknownTicket, "elsewhere": admission.ErrElsewhere, "waiting": admission.ErrTicketWaiting, "used": admission.ErrTicketUsed,
}

// replyOf returns what another gateway is told.
func replyOf(t admission.Ticket, err error) ticketReply {
	var ended *admission.EndedError
	switch {
	case err == nil:
		return ticketReply{Ticket: (*wireTicket)(&t)}
	case errors.As(err, &ended):
		return ticketReply{Ending: ended.How}
	}
	for name, known := range replies {
		if errors.Is(err, known) {
			return ticketReply{Error: name}
		}
	}
	return ticketReply{Error: err.Error()}
}

// ticket returns what the answer says, unless there is an error.
func (reply *ticketReply) ticket(err error) (admission.Ticket, error) {
	switch {
	case err != nil:
		return admission.Ticket{}, err
	case reply.Ticket != nil:
		return admission.Ticket(*reply.Ticket), nil
	case reply.Ending != "":
		return admission.Ticket{}, &admission.EndedError{How: reply.Ending}
	case reply.Error == "":
		return admission.Ticket{}, nil
	}
	if err := replies[reply.Error]; err != nil {
		return admission.Ticket{}, err
	}
	return admission.Ticket{}, fmt.Errorf("%w: %s", admission.ErrElsewhere, reply.Error)
}
