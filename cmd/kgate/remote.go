package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/kgate/kgate/internal/admin"
	"github.com/kgate/kgate/internal/socket"
)

// adminAddrs are the flags of commands that read from a running gateway.
type adminAddrs struct {
	Admin []string `name:"admin" env:"KGATE_ADMIN" default:"http://127.0.0.1:9080" sep:"," placeholder:"URL" help:"Admin address of any gateway, http://HOST:PORT or unix:/PATH; of several, separated by commas, the first that answers (default ${default})."`
}

// adminToken is the flag of commands that change something.
type adminToken struct {
	File string `name:"admin-token-file" env:"KGATE_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File with the admin token. Changes require it if the gateway has one, except over a socket."`
}

// adminFlags are the flags of commands that change something.
type adminFlags struct {
	Admin adminAddrs `embed:""`
	Token adminToken `embed:""`
}

// remote returns a remote that may make changes.
func (f adminFlags) remote() (*remote, error) {
	token, err := f.Token.read()
	if err != nil {
		return nil, err
	}
	return f.Admin.remote(token)
}

// postOne posts to the single gateway that the flags must name, and returns its name and its answer.
func (f adminFlags) postOne(ctx context.Context, path string) (r *remote, name string, answer []byte, err error) {
	if len(f.Admin.Admin) != 1 {
		return nil, "", nil, usageError("--admin must name the one gateway that this is about")
	}
	if r, err = f.remote(); err != nil {
		return nil, "", nil, err
	}
	s, _, err := r.status(ctx)
	if err != nil {
		return nil, "", nil, err
	}
	answer, err = r.post(ctx, path, nil)
	return r, s.Gateway.Name, answer, err
}

// read returns the token, "" if no file is named.
func (t adminToken) read() (string, error) {
	if t.File == "" {
		return "", nil
	}
	data, err := os.ReadFile(t.File)
	if err != nil {
		return "", fmt.Errorf("--admin-token-file: %w", err)
	}
	tokens := tokensIn(data)
	if len(tokens) == 0 {
		return "", fmt.Errorf("--admin-token-file: %s is empty", t.File)
	}
	return tokens[0], nil
}

// remote talks to running gateways.
type remote struct {
	bases []*url.URL
	token string
	http  *http.Client
}

func (a adminAddrs) remote(token string) (*remote, error) {
	tr := socket.Transport()
	tr.DisableKeepAlives = true
	r := &remote{token: token, http: &http.Client{Transport: tr}}
	for _, text := range a.Admin {
		u, err := socket.ParseURL(text)
		if err != nil {
			return nil, usageError("--admin %w", err)
		}
		r.bases = append(r.bases, u)
	}
	if len(r.bases) == 0 {
		return nil, usageError("--admin, or KGATE_ADMIN, is empty: give the admin address of a gateway, or leave it out")
	}
	return r, nil
}

const (
	// maxDocument bounds an answer.
	maxDocument = 16 << 20
	// remotePatience is how long a gateway may take to answer.
	remotePatience = 5 * time.Second
)

var (
	// errNoAnswer: no gateway answers at any address.
	errNoAnswer = errors.New("no gateway answers")
	// errNoListener is an errNoAnswer: nothing listens at any address.
	errNoListener = fmt.Errorf("%w", errNoAnswer)
)

// post asks the first gateway that answers for a change, and returns its answer.
func (r *remote) post(ctx context.Context, path string, body any) ([]byte, error) {
	data, _, err := r.first(ctx, http.MethodPost, path, body)
	return data, err
}

// get decodes the document at path of the first gateway that answers, and returns it as
// it was sent.
func (r *remote) get(ctx context.Context, path string, into any) ([]byte, error) {
	data, from, err := r.first(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("%s does not answer as a kgate does; is it the admin address? %w", socket.Name(from), err)
	}
	return data, nil
}

// first asks the gateways in turn until one answers, and returns which. After a dial that
// fails the next one is asked; a request that changes nothing goes on to it after any
// failure to answer.
func (r *remote) first(ctx context.Context, method, path string, body any) ([]byte, *url.URL, error) {
	path, query, _ := strings.Cut(path, "?")
	var causes []string
	kind := errNoListener
	for _, base := range r.bases {
		target := base.JoinPath(path)
		target.RawQuery = query
		data, err := r.ask(ctx, target, method, body)
		var silent *url.Error // what http.Client returns if there is no answer
		var dial *net.OpError
		switch {
		case errors.As(err, &dial) && dial.Op == "dial":
			causes = append(causes, fmt.Sprintf("at %s: %v", shown(base), dial.Err))
		case errors.As(err, &silent) && method == http.MethodGet && ctx.Err() == nil:
			kind = errNoAnswer
			causes = append(causes, fmt.Sprintf("at %s: %v", shown(base), silent.Err))
		default:
			return data, base, err
		}
	}
	return nil, nil, fmt.Errorf("%w %s; is it running? If it has another admin address, give it with --admin", kind, strings.Join(causes, ", "))
}

// shown is a base URL as it was given.
func shown(base *url.URL) string {
	if name := socket.Name(base); name != base.Host {
		return name
	}
	return base.String()
}

func (r *remote) ask(ctx context.Context, target *url.URL, method string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, remotePatience)
	defer cancel()
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), &content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, &url.Error{Op: method, URL: target.String(), Err: err}
	}
	data = unprintable.ReplaceAll(data, []byte(`\ufffd`))
	switch {
	case resp.StatusCode/100 == 2:
		return data, nil
	case resp.StatusCode == http.StatusUnauthorized && r.token == "":
		return nil, fmt.Errorf("%s: changes need the admin token: give its file with --admin-token-file or KGATE_ADMIN_TOKEN_FILE", socket.Name(target))
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, fmt.Errorf("%s: this gateway has another admin token: see its node.admin_token_file", socket.Name(target))
	default:
		return nil, refusal(socket.Name(target), resp, data)
	}
}

// unprintable is what would tell a terminal to do something, as it is in JSON: other gateways
// may have chosen the words that are shown.
var unprintable = regexp.MustCompile(`\\u00(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])|\\[bfr]|[\x{7f}-\x{9f}\x{202a}-\x{202e}\x{2066}-\x{2069}]`)

func refusal(host string, resp *http.Response, data []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("%s answers %s; is this the admin address of a gateway?", host, resp.Status)
	}
	return fmt.Errorf("%s: %s", host, problem.Detail)
}

// status returns the status of the first gateway that answers, decoded and as it was
// sent.
func (r *remote) status(ctx context.Context) (*admin.Status, []byte, error) {
	s := new(admin.Status)
	data, err := r.get(ctx, "/api/v1/status", s)
	if err != nil {
		return nil, nil, err
	}
	return s, data, nil
}

// line returns the requests of a pool.
func (r *remote) line(ctx context.Context, pool string) (*admin.Line, error) {
	l := new(admin.Line)
	_, err := r.get(ctx, "/api/v1/line?pool="+url.QueryEscape(pool), l)
	return l, err
}
