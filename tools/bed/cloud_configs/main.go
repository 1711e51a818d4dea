// SPDX-License-Identifier: Apache-2.0

// Command cloud-configs reads configurations as the cloud providers of Kubernetes do. Each line on standard input is
// a JSON object with a format, "gcfg" or "yaml", and a text, which has the key `value` in the section `global`. The
// answer is a line of JSON with that value as a string, or with the reason why the format's library refuses the text.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"gopkg.in/gcfg.v1"
	"gopkg.in/yaml.v2"
)

type request struct{ Format, Text string }

type answer struct {
	Value string `json:"value"`
	Error string `json:"error"`
}

type config struct {
	Global struct {
		Value string `yaml:"value"`
	} `yaml:"global"`
}

func read(ask request) (reply answer) {
	defer func() {
		if reason := recover(); reason != nil {
			reply = answer{Error: fmt.Sprint("panic: ", reason)}
		}
	}()
	var parsed config
	var err error
	if ask.Format == "gcfg" {
		err = gcfg.FatalOnly(gcfg.ReadStringInto(&parsed, ask.Text))
	} else {
		err = yaml.Unmarshal([]byte(ask.Text), &parsed)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: parsed.Global.Value}
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var ask request
		if err := json.Unmarshal(line, &ask); err != nil {
			panic(err)
		}
		if err := answers.Encode(read(ask)); err != nil {
			panic(err)
		}
	}
}
