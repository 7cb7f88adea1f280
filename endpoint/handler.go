package endpoint

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
)

// PathIDs is where a cluster says who it is.
const PathIDs = "/ids"

// serve routes by the exact path. There is no http.ServeMux in between because
// that answers some paths by itself, with redirects and HTML.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.guard.countRequest()
	switch r.URL.Path {
	case PathIDs:
		s.serveIDs(w, r)
	default:
		refuse(w, http.StatusNotFound, "there is nothing at this path")
	}
}

func (s *Server) serveIDs(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "use GET")
		return
	}
	if r.ContentLength != 0 {
		refuse(w, http.StatusRequestEntityTooLarge, "a request for "+PathIDs+" has no body")
		return
	}
	body, err := encode(s.cfg.Identity())
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the identity cannot be encoded")
		return
	}
	answer(w, http.StatusOK, body)
}

// refuse answers with an error in JSON and closes the connection, so that
// nothing of an unwanted body is read. The problem is plain text without
// quotes.
func refuse(w http.ResponseWriter, status int, problem string) {
	w.Header().Set("Connection", "close")
	answer(w, status, []byte(`{"error":"`+problem+`"}`))
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// A failure to write is the client's loss and shows in its own error;
	// net/http discards the body of an answer to HEAD.
	_, _ = w.Write(body)
}

// encode is json.Marshal without the escapes for HTML, which a name in /ids
// does not need, and without a newline.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
