package foreign

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// probeCase is one of Http11Probe's: what is sent, and how an answer is judged.
type probeCase struct {
	id   string
	sent []byte
	// steps of the judgement: conditions and verdicts, the first that holds counts.
	steps []step
}

type step struct{ condition, yes, no string }

// Its cases are C#. The tests read of it what describes bytes and statuses: string literals put
// together, and conditions on the status and on the connection. What needs more is left out, and
// counted.
var (
	caseID     = regexp.MustCompile(`Id = "([^"]+)"`)
	statement  = regexp.MustCompile(`(?s)^(?:if \((.*?)\)\s*)?return (.+?);`)
	exact      = regexp.MustCompile(`ExpectedStatus = StatusCodeRange\.(\w+)(?:\((\d+)(?:, (\d+))?\))?`)
	assignment = regexp.MustCompile(`(?s)^(?:var|const string|string|byte\[\]) (\w+) = (.+?);\n`)
	copied     = regexp.MustCompile(`^(\w+)\.CopyTo\((\w+), [^;]*\);`)
	oneByte    = regexp.MustCompile(`^(\w+)\[[^\]]*\] = (0x[0-9A-Fa-f]+);`)
	between    = regexp.MustCompile(`^response\.StatusCode is >= (\d+) and < (\d+)(?: or (\d+))?$`)
	lineRemark = regexp.MustCompile(`(?m)^\s*//.*$`)
)

var errUnread = errors.New("not of the forms that are read")

func readProbes(t *testing.T, dir, host string) (cases []probeCase, unread []string) {
	t.Helper()
	for _, suite := range []string{"Compliance", "Smuggling", "MalformedInput", "Normalization"} {
		text, err := os.ReadFile(filepath.Join(dir, "src/Http11Probe/TestCases/Suites", suite+"Suite.cs"))
		if err != nil {
			t.Fatal(err)
		}
		source := lineRemark.ReplaceAllString(strings.ReplaceAll(string(text), "\r\n", "\n"), "")
		for _, part := range strings.Split(source, "yield return new ")[1:] {
			id := caseID.FindStringSubmatch(part)
			if id == nil || strings.Contains(part, "Scored = false") {
				continue
			}
			c := probeCase{id: id[1]}
			if c.sent, err = payload(part, host); err == nil {
				c.steps, err = judgement(part)
			}
			if err != nil || !strings.HasPrefix(part, "TestCase") {
				unread = append(unread, id[1])
				continue
			}
			cases = append(cases, c)
		}
	}
	return cases, unread
}

// payload returns the bytes of a case.
func payload(part, host string) ([]byte, error) {
	_, text, ok := strings.Cut(part, "PayloadFactory = ")
	if !ok {
		return nil, errUnread
	}
	_, text, _ = strings.Cut(text, "=>")
	text = strings.TrimSpace(text)
	names := map[string]string{"ctx.HostHeader": host}
	if !strings.HasPrefix(text, "{") {
		end := strings.Index(text, "\n            Expected")
		if b := strings.Index(text, "\n            BehavioralAnalyzer"); b >= 0 && (end < 0 || b < end) {
			end = b
		}
		if end < 0 {
			return nil, errUnread
		}
		s, err := value(strings.TrimSuffix(strings.TrimSpace(text[:end]), ","), names)
		return []byte(s), err
	}
	for text = text[1:]; ; {
		text = strings.TrimSpace(text)
		if m := copied.FindStringSubmatch(text); m != nil {
			names[m[2]] += names[m[1]]
			text = text[len(m[0]):]
		} else if m := oneByte.FindStringSubmatch(text); m != nil {
			n, _ := strconv.ParseUint(m[2], 0, 8)
			names[m[1]] += string([]byte{byte(n)})
			text = text[len(m[0]):]
		} else if m := assignment.FindStringSubmatch(text); m != nil {
			s, err := value(m[2], names)
			if err != nil {
				return nil, err
			}
			names[m[1]] = s
			text = text[len(m[0]):]
		} else if rest, ok := strings.CutPrefix(text, "return "); ok {
			expression, _, _ := strings.Cut(rest, ";\n")
			s, err := value(expression, names)
			return []byte(s), err
		} else {
			return nil, errUnread
		}
	}
}

// value returns what an expression of strings is.
func value(text string, names map[string]string) (string, error) {
	var b strings.Builder
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		switch {
		case strings.HasPrefix(text, "+"):
			text = text[1:]
		case strings.HasPrefix(text, `$"`), strings.HasPrefix(text, `"`):
			s, rest, err := literal(text, names)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
			text = rest
		case strings.HasPrefix(text, "new byte["):
			var list string
			if _, braces, ok := strings.Cut(text, "{"); ok {
				list, _, _ = strings.Cut(braces, "}")
			}
			for item := range strings.SplitSeq(list, ",") {
				if n, err := strconv.ParseUint(strings.TrimSpace(item), 0, 8); err == nil {
					b.WriteByte(byte(n))
				}
			}
			text = ""
		case strings.HasPrefix(text, "new string("):
			var c rune
			var n string
			inside, rest, _ := strings.Cut(text[len("new string("):], ")")
			if _, err := fmt.Sscanf(strings.ReplaceAll(inside, "_", ""), "'%c', %s", &c, &n); err != nil {
				return "", errUnread
			}
			times, err := strconv.Atoi(n)
			if err != nil {
				return "", errUnread
			}
			b.WriteString(strings.Repeat(string(c), times))
			text = rest
		default:
			s, rest, err := called(text, names)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
			text = rest
		}
	}
	return b.String(), nil
}

// called returns the value of a name, or of a function that only passes a string on.
func called(text string, names map[string]string) (s, rest string, err error) {
	for _, f := range []string{"MakeRequest(", "Encoding.ASCII.GetBytes(", "Encoding.UTF8.GetBytes(", "Encoding.Latin1.GetBytes("} {
		if inside, ok := strings.CutPrefix(text, f); ok {
			end := strings.LastIndexByte(inside, ')')
			if end < 0 {
				return "", "", errUnread
			}
			s, err = value(inside[:end], names)
			return s, inside[end+1:], err
		}
	}
	name := text
	if end := strings.IndexAny(text, " +\n)"); end >= 0 {
		name = text[:end]
	}
	if s, ok := names[name]; ok {
		return s, text[len(name):], nil
	}
	return "", "", errUnread
}

// literal reads a string, in which names may stand in braces.
func literal(text string, names map[string]string) (s, rest string, err error) {
	filled := text[0] == '$'
	text = strings.TrimPrefix(text, "$")[1:]
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:], nil
		case c == '\\':
			i++
			switch e := text[i]; e {
			case 'r':
				b.WriteByte('\r')
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case '0':
				b.WriteByte(0)
			case '"', '\\':
				b.WriteByte(e)
			default:
				return "", "", errUnread
			}
		case filled && c == '{':
			name, _, ok := strings.Cut(text[i+1:], "}")
			value, known := names[name]
			if !ok || !known {
				return "", "", errUnread
			}
			b.WriteString(value)
			i += len(name) + 1
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errUnread
}

// judgement reads how a case judges an answer.
func judgement(part string) ([]step, error) {
	_, text, _ := strings.Cut(part, "Expected = ")
	if m := exact.FindStringSubmatch(text); m != nil && !strings.Contains(text, "CustomValidator") {
		low, high := m[2], m[2]
		if m[1] == "Range" {
			high = m[3]
		} else if m[1] != "Exact" {
			low, high = m[1][5:6]+"00", m[1][5:6]+"99"
		}
		none := "TestVerdict.Fail"
		if strings.Contains(text, "AllowConnectionClose = true") {
			none = "TestVerdict.Pass"
		}
		good := "response.StatusCode >= " + low + " && response.StatusCode <= " + high
		return []step{{"response is null", none, ""}, {good, "TestVerdict.Pass", "TestVerdict.Fail"}}, nil
	}
	_, text, ok := strings.Cut(text, "CustomValidator = (response, state) =>")
	if text = strings.TrimSpace(text); !ok || !strings.HasPrefix(text, "{") {
		return nil, errUnread
	}
	var steps []step
	for text = text[1:]; ; {
		text = strings.TrimSpace(text)
		if strings.HasPrefix(text, "}") {
			return steps, nil
		}
		m := statement.FindStringSubmatch(text)
		if m == nil {
			return nil, errUnread
		}
		s, all := step{condition: m[1], yes: m[2]}, m[1]
		if condition, verdicts, ok := strings.Cut(m[2], "?"); ok {
			yes, no, _ := strings.Cut(verdicts, ":")
			all += " && " + condition
			if s.condition != "" {
				condition = s.condition + " && " + condition
				steps = append(steps, step{condition, strings.TrimSpace(yes), ""})
				s.yes = strings.TrimSpace(no)
			} else {
				s = step{strings.TrimSpace(condition), strings.TrimSpace(yes), strings.TrimSpace(no)}
			}
		}
		for _, c := range strings.FieldsFunc(all, func(r rune) bool { return r == '&' || r == '|' }) {
			if _, err := holds(c, answer{}); err != nil {
				return nil, err
			}
		}
		if !strings.HasPrefix(s.yes, "TestVerdict.") {
			return nil, errUnread
		}
		steps = append(steps, s)
		text = text[len(m[0]):]
	}
}

// verdict judges an answer.
func (c probeCase) verdict(a answer) string {
	for _, s := range c.steps {
		yes := true
		for _, other := range strings.Split(s.condition, "||") {
			yes = true
			for _, condition := range strings.Split(other, "&&") {
				is, _ := holds(condition, a)
				yes = yes && is
			}
			if yes {
				break
			}
		}
		switch {
		case yes:
			return strings.TrimPrefix(s.yes, "TestVerdict.")
		case s.no != "":
			return strings.TrimPrefix(s.no, "TestVerdict.")
		}
	}
	return "Fail"
}

// holds reports whether a condition holds.
func holds(condition string, a answer) (bool, error) {
	status := a.status()
	condition = strings.Trim(strings.TrimSpace(condition), "()")
	if m := between.FindStringSubmatch(condition); m != nil {
		low, _ := strconv.Atoi(m[1])
		high, _ := strconv.Atoi(m[2])
		other, _ := strconv.Atoi(m[3]) // 0: there is none
		return status >= low && status < high || status == other && other > 0, nil
	}
	if rest, ok := strings.CutPrefix(condition, "response.StatusCode is "); ok {
		for n := range strings.SplitSeq(rest, " or ") {
			if want, err := strconv.Atoi(n); err != nil {
				return false, errUnread
			} else if status == want {
				return true, nil
			}
		}
		return false, nil
	}
	for _, compare := range []struct {
		sign string
		is   func(n int) bool
	}{{"==", func(n int) bool { return status == n }}, {">=", func(n int) bool { return status >= n }}, {"<=", func(n int) bool { return status <= n }}, {"!=", func(n int) bool { return status != n }}} {
		if rest, ok := strings.CutPrefix(condition, "response.StatusCode "+compare.sign+" "); ok {
			n, err := strconv.Atoi(rest)
			return compare.is(n), err
		}
	}
	switch condition {
	case "":
		return true, nil
	case "response is null":
		return status == 0, nil
	case "response is not null":
		return status != 0, nil
	case "state == ConnectionState.ClosedByServer":
		return a.closed, nil
	case "state == ConnectionState.TimedOut", "state is ConnectionState.TimedOut":
		return !a.closed && status == 0, nil
	case "state is ConnectionState.TimedOut or ConnectionState.ClosedByServer", "state is ConnectionState.ClosedByServer or ConnectionState.TimedOut":
		return a.closed || status == 0, nil
	}
	return false, errUnread
}

// TestHttp11Probe: of Http11Probe's cases the gateway passes as many as nginx. Package http1 alone
// stands beside it: what it takes counts as 200.
func TestHttp11Probe(t *testing.T) {
	dir := fetch(t, "KGATE_HTTP11PROBE", "https://github.com/MDA2AV/Http11Probe")
	passed := make(map[string]int)
	for _, s := range append(servers(t), server{"proxy/http1", ""}) {
		cases, unread := readProbes(t, dir, cmp.Or(s.addr, "localhost:8080"))
		answers := make([]answer, len(cases))
		inParallel(len(cases), func(i int) {
			if s.addr == "" {
				answers[i] = alone(cases[i].sent, "request")
			} else {
				answers[i] = send(t, s.addr, cases[i].sent)
			}
		})
		warned := 0
		for i, c := range cases {
			switch v := c.verdict(answers[i]); v {
			case "Pass":
				passed[s.name]++
				continue
			case "Warn":
				warned++
				fallthrough
			default:
				t.Logf("%s: %s: %s (%v, closed %v)", s.name, v, c.id, answers[i].statuses, answers[i].closed)
			}
		}
		t.Logf("%s passes %d of %d, with %d warnings; %d cases are not read: %s", s.name, passed[s.name], len(cases), warned, len(unread), strings.Join(unread, " "))
	}
	if passed["kgate"] < passed["nginx"] && os.Getenv("KGATE_FOREIGN") == "strict" {
		t.Errorf("kgate passes %d, nginx %d", passed["kgate"], passed["nginx"])
	}
}
