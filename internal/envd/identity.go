package envd

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/agent-sandbox/agent-sandbox-server/internal/api"
	"github.com/agent-sandbox/agent-sandbox-server/internal/connect"
	"github.com/agent-sandbox/agent-sandbox-server/policy"
)

// initIdentity is who holds the token that /init has set.
const initIdentity = "envd"

// sameToken compares in a time that does not depend on where they differ.
func sameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// identify names the caller of a request: by the policy when it has tokens,
// else by the token that /init has set on this listener.
func (s *Server) identify(r *http.Request) func(*policy.Policy) (policy.Identity, error) {
	return func(p *policy.Policy) (policy.Identity, error) {
		set := s.settings()
		if p.HasTokens() || set.token == "" {
			return s.Gate.Identify(r.Context(), p, r, false)
		}
		for _, token := range api.Tokens(r) {
			if sameToken(token, set.token) {
				return set.identity, nil
			}
		}
		s.Gate.Slow(r.Context(), r)
		return policy.Identity{}, policy.Refuse(policy.Unauthorized, "unauthorized access, please provide a valid access token").Err()
	}
}

// identifyFiles also takes a signature of path and operation, from callers who
// show no token.
func (s *Server) identifyFiles(r *http.Request, q url.Values, operation string) func(*policy.Policy) (policy.Identity, error) {
	byToken := s.identify(r)
	return func(p *policy.Policy) (policy.Identity, error) {
		if len(api.Tokens(r)) > 0 || !p.HasTokens() && s.settings().token == "" {
			return byToken(p)
		}
		if !q.Has("signature") {
			who, err := byToken(p)
			if err != nil {
				err = connect.Errorf(connect.Unauthenticated, "missing signature query parameter")
			}
			return who, err
		}
		if operation == "write" && q.Get("path") == "" {
			return policy.Identity{}, connect.Errorf(connect.InvalidArgument, "a signature to write needs a path")
		}
		who, ok := s.signer(p, q, operation)
		if !ok {
			s.Gate.Slow(r.Context(), r)
			return policy.Identity{}, connect.Errorf(connect.Unauthenticated, "invalid signature")
		}
		if text := q.Get("signature_expiration"); text != "" {
			if until, err := strconv.ParseInt(text, 10, 64); err != nil || until < time.Now().Unix() {
				return policy.Identity{}, connect.Errorf(connect.Unauthenticated, "signature is already expired")
			}
		}
		return who, nil
	}
}

// signer is the holder of the token that a signature was made with.
func (s *Server) signer(p *policy.Policy, q url.Values, operation string) (policy.Identity, bool) {
	given := []byte(q.Get("signature"))
	fits := func(token string) bool {
		want := signature(q.Get("path"), operation, q.Get("username"), token, q.Get("signature_expiration"))
		return subtle.ConstantTimeCompare(given, []byte(want)) == 1
	}
	if !p.HasTokens() {
		set := s.settings()
		return set.identity, fits(set.token)
	}
	if s.Tokens == nil {
		return policy.Identity{}, false
	}
	for _, token := range s.Tokens() {
		if token == "" || !fits(token) {
			continue
		}
		if who, d := p.Authenticate(policy.Credentials{Access: []string{token}}); d.OK() && who.ByToken {
			return who, true
		}
	}
	return policy.Identity{}, false
}

// signature stands in for a token in a URL that may be given away.
func signature(path, operation, user, token, expiration string) string {
	text := path + ":" + operation + ":" + user + ":" + token
	if expiration != "" {
		text += ":" + expiration
	}
	sum := sha256.Sum256([]byte(text))
	return "v1_" + base64.RawStdEncoding.EncodeToString(sum[:])
}
