package http1

import (
	"testing"

	"github.com/kgate/kgate/internal/mutant"
)

// Each rule, taken out, is missed by a table.
func TestMutantsAreCaught(t *testing.T) {
	head := func(name, old, changed, caught string) mutant.Mutant {
		return mutant.Mutant{Name: name, File: "head.go", Old: old, New: changed, Caught: caught, By: "^(TestRequest|TestResponse|TestLimits|TestFields)$"}
	}
	framing := func(name, old, changed, caught string) mutant.Mutant {
		return mutant.Mutant{Name: name, File: "framing.go", Old: old, New: changed, Caught: caught, By: "^(TestFraming|TestAnswersWithoutBody)$"}
	}
	body := func(name, old, changed, caught string) mutant.Mutant {
		return mutant.Mutant{Name: name, File: "body.go", Old: old, New: changed, Caught: caught, By: "^(TestChunks|TestLength|TestInput)$"}
	}
	write := func(name, old, changed, caught string) mutant.Mutant {
		return mutant.Mutant{Name: name, File: "write.go", Old: old, New: changed, Caught: caught, By: "^TestWriteRefused$"}
	}
	mutant.Suite{Mutants: []mutant.Mutant{
		head("a line may end in LF", "end == begin || b[end-1] != '\\r'", "end == begin", "want"),
		head("a head may be longer", "end >= l.Bytes", "end > l.Bytes", "."),
		head("fields are not counted", "len(h.fields) >= l.Fields", "false", "."),
		head("the method may be anything", "!all(line[:i], isTokenByte)", "false", "method"),
		head("the target may be anything", "!all(target, isTargetByte)", "false", "target"),
		head("any version", "b[5] != '1' || b[7] > '1'", "false", "HTTP/1.2"),
		head("any protocol", "string(b[:len(begin)]) != begin || ", "", "version"),
		head("any status", "digits[0] == '0'", "false", "099"),
		head("values are not looked at", "rule := judgeValue(line[from:to]); rule != 0", "rule := Rule(0); rule != 0", "value"),
		head("a folded line is a field without name", "line[0] == ' ' || line[0] == '\\t'", "false", "fold"),
		head("a space in front of a colon is part of the name", "i == len(line) || line[i] != ':'", "i == len(line) || line[i] != ':' && line[i] != ' '", "colon"),
		head("no Host is needed", "i < 0 && h.first.minor > 0", "false", "no Host"),
		head("two Hosts", "i >= 0 && h.next(Host, i+1) >= 0", "false", "Host"),
		head("any Host", "i >= 0 && !isHost(h.value(i))", "false", "Host"),
		head("an absolute target of any host", "i >= 0 && !bytes.EqualFold(authority, h.value(i))", "false", "another"),
		{Name: "DEL in a value", File: "grammar.go", Old: "|| c == 0x7f }", New: "}", Caught: "DEL", By: "^TestRequest$"},
		{Name: "eight bytes at once miss a control character", File: "grammar.go", Old: "if below|(del-ones)&^del&highs == 0 {", New: "if below|(del-ones)&^del&highs != 1 {", Caught: ".", By: "^TestRequest$"},
		{Name: "a port may be anything", File: "grammar.go", Old: "all(port[1:], isDigit)", New: "true", Caught: "port", By: "^TestRequest$"},

		framing("both lengths", "length >= 0 && coding >= 0", "false", "both|LengthAndCoding|want"),
		framing("two codings", "coding >= 0 && h.next(TransferEncoding, coding+1) >= 0", "false", "want"),
		framing("chunks in HTTP/1.0", "coding >= 0 && h.first.minor == 0", "false", "want"),
		framing("two lengths", "length >= 0 && h.next(ContentLength, length+1) >= 0", "false", "want"),
		framing("a length with zeros", "b[0] == '0' && len(b) > 1", "false", "want"),
		framing("a length with signs", "if !is(c, isDigit) {", "if c == ',' {", "want"),
		framing("chunked is not last", "} else if j < len(value) {", "} else if false {", "want"),
		framing("HEAD has a body", `method == "HEAD", status == 304`, "status == 304", "HEAD"),
		framing("204 has a body", "status < 200, status == 204", "status < 200", "204"),
		framing("101 is no tunnel", "status == 101, ", "", "101"),
		framing("HTTP/1.0 persists", "case h.first.minor == 0:\n\t\treturn", "case false:\n\t\treturn", "want"),
		framing("a trailer may frame", "return f, h.judgeAnnounced()", "return f, 0", "want"),

		body("the end of a chunk may be anything", "return false, BadChunkEnd", "b.in.Discard(2)\n\t\t\tb.state = atSize\n\t\t\treturn true, 0", "."),
		body("a chunk's line may end in LF", "end == 0 || next[end-1] != '\\r'", "end == 0", "."),
		body("sizes may overflow", "i > maxSizeDigits", "false", "."),
		body("no size is a size", "if i == 0 {\n\t\treturn 0, BadChunkSize", "if false {\n\t\treturn 0, BadChunkSize", "."),
		body("extensions are not looked at", "if i < 0 {\n\t\t\treturn 0, BadChunkExtension", "if i < 0 {\n\t\t\treturn size, 0", "."),
		body("chunks may be all waste", "b.waste > maxWaste", "false", "."),
		body("an end too early is the end", "return io.ErrUnexpectedEOF", "return err", "."),
		body("a trailer frames the next message", "return f.id.isFraming()", "return false", "trailer"),

		write("any method", "!all(dst[from:], isTokenByte) {\n\t\treturn dst[:from], BadMethod", "false {\n\t\treturn dst[:from], BadMethod", "method"),
		write("any target", "!all(dst[behind:], isTargetByte)", "len(dst) < behind", "target"),
		write("any host", "!isHost(dst[behind:])", "len(dst) < behind", "host"),
		write("any name", "!all(dst[from:], isTokenByte) {\n\t\treturn dst[:from], BadName", "false {\n\t\treturn dst[:from], BadName", "name"),
		write("any value", "rule := judgeValue(dst[behind:]); rule != 0", "rule := judgeValue(dst[behind:behind]); rule != 0", "value"),
	}}.Run(t)
}
