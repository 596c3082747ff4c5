package http1

// Rule is why a message was refused: the rule that it breaks.
type Rule uint8

// The rules.
const (
	_ Rule = iota

	// Of lines.

	BareLF
	BareCR
	HeadTooLarge
	TooManyFields

	// Of the first line.

	BadRequestLine
	BadMethod
	BadTarget
	TargetTooLong
	BadVersion
	UnknownVersion
	BadStatusLine
	BadStatus

	// Of fields.

	BadName
	NoName
	NoColon
	SpaceBeforeColon
	FoldedLine
	BadValue

	// Of the host.

	NoHost
	ManyHosts
	BadHost
	OtherHost

	// Of framing.

	BadLength
	ManyLengths
	LengthAndCoding
	ManyCodings
	BadCoding
	UnknownCoding
	CodingInHTTP10

	// Of bodies.

	BadChunkSize
	BadChunkExtension
	ChunkLineTooLong
	BadChunkEnd
	TrailerTooLarge
	BadTrailer

	rules // how many
)

var ruleTexts = [rules]struct {
	text   string
	status int // 0: 400
}{
	BareLF:        {text: "a line ends in LF without CR"},
	BareCR:        {text: "there is a CR without LF"},
	HeadTooLarge:  {text: "the head is too large", status: 431},
	TooManyFields: {text: "the head has too many fields", status: 431},

	BadRequestLine: {text: "the request line is not a method, a target and a version, with one space between"},
	BadMethod:      {text: "the method is not a token"},
	BadTarget:      {text: "the target has a byte that may not stand in one"},
	TargetTooLong:  {text: "the request line is too long", status: 414},
	BadVersion:     {text: "the version is not one of HTTP"},
	UnknownVersion: {text: "the version is neither HTTP/1.0 nor HTTP/1.1", status: 505},
	BadStatusLine:  {text: "the status line is not a version and a status"},
	BadStatus:      {text: "the status is not three digits from 100 on"},

	BadName:          {text: "the name of a field has a byte that may not stand in one"},
	NoName:           {text: "a field has no name"},
	NoColon:          {text: "a line of the head has no colon"},
	SpaceBeforeColon: {text: "there is white space between the name of a field and its colon"},
	FoldedLine:       {text: "a line of the head begins with white space"},
	BadValue:         {text: "the value of a field has a control character"},

	NoHost:    {text: "there is no Host"},
	ManyHosts: {text: "there is more than one Host"},
	BadHost:   {text: "Host is not a host, or a host and a port"},
	OtherHost: {text: "the target has another host than Host"},

	BadLength:       {text: "Content-Length is not a number in its shortest form"},
	ManyLengths:     {text: "there is more than one Content-Length"},
	LengthAndCoding: {text: "there are both Content-Length and Transfer-Encoding"},
	ManyCodings:     {text: "there is more than one Transfer-Encoding"},
	BadCoding:       {text: "Transfer-Encoding has chunked twice, not last, or in another form"},
	UnknownCoding:   {text: "Transfer-Encoding has another coding than chunked", status: 501},
	CodingInHTTP10:  {text: "there is Transfer-Encoding in HTTP/1.0"},

	BadChunkSize:      {text: "the size of a chunk is not a hexadecimal number"},
	BadChunkExtension: {text: "the extension of a chunk is malformed"},
	ChunkLineTooLong:  {text: "the line of a chunk is too long"},
	BadChunkEnd:       {text: "a chunk does not end where its size says"},
	TrailerTooLarge:   {text: "the trailer is too large", status: 431},
	BadTrailer:        {text: "Trailer has the name of a field by which a message is framed or routed"},
}

// Error implements error.
func (r Rule) Error() string { return "http1: " + r.Text() }

// Text returns what is wrong, for the sender of the message.
func (r Rule) Text() string { return ruleTexts[r].text }

// Status returns the status that answers a request which breaks the rule.
func (r Rule) Status() int {
	if s := ruleTexts[r].status; s != 0 {
		return s
	}
	return 400
}
