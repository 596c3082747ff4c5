package config

import "fmt"

// ErrorPage is shown in place of the line of text with which the gateway itself
// answers. Clients that prefer JSON get the problem document, and the upstream's
// answers stay as they are.
type ErrorPage struct {
	// Status lists statuses such as 503, or classes such as 5xx. A page that names the
	// status itself wins, then the first.
	Status []Status `yaml:"status"`
	// File has the page, a template of Go's html/template with {{.Status}}, {{.Title}},
	// {{.Detail}}, {{.RetryAfter}} (seconds, or 0) and {{.RequestID}}. A name that ends in .txt
	// is plain text; all others are HTML. A reload reads it again.
	File string `yaml:"file"`
}

// Status is the status of an answer, or a class of them.
type Status string

// UnmarshalText reads a status such as 503 or 5xx.
func (s *Status) UnmarshalText(text []byte) error {
	ok := len(text) == 3 && (text[0] == '4' || text[0] == '5')
	if ok && string(text[1:]) != "xx" {
		ok = text[1] >= '0' && text[1] <= '9' && text[2] >= '0' && text[2] <= '9'
	}
	if !ok {
		return problem(quote(string(text))+" is not the status of an error", "write a status such as 503, or 4xx or 5xx")
	}
	*s = Status(text)
	return nil
}

// String formats s as the file has it.
func (s Status) String() string { return string(s) }

func (v *validator) errorPages(list string, pages []ErrorPage) {
	seen := map[Status]int{}
	for i, p := range pages {
		key := fmt.Sprintf("%s[%d]", list, i)
		if len(p.Status) == 0 && !v.src.broken(key+".status") {
			v.wrong(key+".status", "is missing", "write when the page is shown, such as status: [5xx]")
		}
		for j, s := range p.Status {
			at := fmt.Sprintf("%s.status[%d]", key, j)
			if v.src.broken(at) {
				continue
			}
			if other, taken := seen[s]; taken {
				v.wrong(at, fmt.Sprintf("%s is the status of %s[%d], too", s, list, other), "keep one of the two")
				continue
			}
			seen[s] = i
		}
		if p.File == "" {
			v.wrong(key+".file", "is missing", "write the name of a file with the page")
		}
	}
}
