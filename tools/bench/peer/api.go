// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"
)

// settings has the keys of the cloud.conf that our controller reads, too.
type settings struct {
	Endpoint string `json:"endpoint"`
	Project  string `json:"project"`
	Token    string `json:"token"`
}

// api sends requests to the cloud over HTTP.
type api struct {
	settings
	client *http.Client
}

// failure is an answer with an error.
type failure struct {
	what   string
	status int
	Error_ struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (f *failure) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", f.what, f.status, f.Error_.Code, f.Error_.Message)
}

func newAPI(file io.Reader) (*api, error) {
	if file == nil {
		return nil, fmt.Errorf("--cloud-config is needed")
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	made := &api{}
	if err := yaml.Unmarshal(text, &made.settings); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 100 // so that calls reuse connections
	made.client = &http.Client{Transport: transport, Timeout: 30 * time.Second}
	return made, nil
}

// call makes one request in the project. answer may be nil.
func (a *api) call(ctx context.Context, method, path string, query url.Values, body, answer any) error {
	var data io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		data = bytes.NewReader(encoded)
	}
	target := a.Endpoint + "/v1/projects/" + url.PathEscape(a.Project) + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, data)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.Token)
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		refused := &failure{what: method + " " + path, status: response.StatusCode}
		_ = json.Unmarshal(text, refused) // an answer that is not the cloud's own has no code
		return refused
	}
	if answer == nil || len(text) == 0 {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// list reads all pages.
func list[T any](ctx context.Context, a *api, path string, query url.Values) ([]T, error) {
	var all []T
	asked := url.Values{"page_size": {strconv.Itoa(1000)}}
	for key, values := range query {
		asked[key] = values
	}
	for {
		var page struct {
			Items []T     `json:"items"`
			Next  *string `json:"next_page_token"`
		}
		if err := a.call(ctx, http.MethodGet, path, asked, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Next == nil {
			return all, nil
		}
		asked.Set("page_token", *page.Next)
	}
}
