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
	File string `name:"admin-token-file" env:"KGATE_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File with the admin token. Changes need it where the gateway has one, but for those over a socket."`
}

// read returns the token, or none where no file is named.
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
			return nil, &codedError{code: exitUsage, err: fmt.Errorf("--admin %w", err)}
		}
		r.bases = append(r.bases, u)
	}
	return r, nil
}

// one is a remote of exactly one gateway, for what is about that gateway.
func (a adminAddrs) one(token string) (*remote, error) {
	if len(a.Admin) != 1 {
		return nil, &codedError{code: exitUsage, err: errors.New("--admin must name the one gateway that this is about")}
	}
	return a.remote(token)
}

const (
	// maxDocument bounds what is read of a gateway.
	maxDocument = 16 << 20
	// remotePatience bounds the time that a gateway has for an answer.
	remotePatience = 5 * time.Second
)

var (
	// errNoAnswer: at none of the addresses a gateway answers.
	errNoAnswer = errors.New("no gateway answers")
	// errNoListener is an errNoAnswer: at none of them anybody listens.
	errNoListener = fmt.Errorf("%w", errNoAnswer)
)

// post has the first gateway that answers change something.
func (r *remote) post(ctx context.Context, path string, body any) error {
	_, _, err := r.first(ctx, http.MethodPost, path, body)
	return err
}

// get decodes what the first gateway that answers has at path, and returns it as it was
// sent.
func (r *remote) get(ctx context.Context, path string, into any) ([]byte, error) {
	data, from, err := r.first(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return nil, fmt.Errorf("%s does not answer as a kgate does: %w", socket.Name(from), err)
	}
	return data, nil
}

// first asks the gateways in turn until one answers, and tells which. After a dial that
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
		var silent *url.Error // what http.Client returns where there is no answer
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
	return nil, nil, fmt.Errorf("%w %s; is it running, and is this its admin address?", kind, strings.Join(causes, ", "))
}

// shown is a base URL as it was written.
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
	if resp.StatusCode/100 != 2 {
		return nil, refusal(socket.Name(target), resp, data)
	}
	return data, nil
}

func refusal(host string, resp *http.Response, data []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		return fmt.Errorf("%s answers %s; is this the admin address of a gateway?", host, resp.Status)
	}
	return fmt.Errorf("%s: %s", host, problem.Detail)
}

// status returns the status of the first gateway that answers, also as it was
// sent.
func (r *remote) status(ctx context.Context) (*admin.Status, []byte, error) {
	s := new(admin.Status)
	data, err := r.get(ctx, "/api/v1/status", s)
	if err != nil {
		return nil, nil, err
	}
	return s, data, nil
}

// line returns who is in a pool.
func (r *remote) line(ctx context.Context, pool string) (*admin.Line, error) {
	l := new(admin.Line)
	_, err := r.get(ctx, "/api/v1/line?pool="+url.QueryEscape(pool), l)
	return l, err
}
