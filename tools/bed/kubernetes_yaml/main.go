// SPDX-License-Identifier: Apache-2.0

// Command kubernetes-yaml reads YAML as the kubelet and kubeadm do. Each line on standard input is a JSON string with a
// text. The answer is a line of JSON with the text's data, or with the reason why Kubernetes refuses the text.
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"sigs.k8s.io/yaml"
)

type answer struct {
	Data  json.RawMessage `json:"data"`
	Error string          `json:"error"`
}

func main() {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var text string
		if err := json.Unmarshal(line, &text); err != nil {
			panic(err)
		}
		data, err := yaml.YAMLToJSON([]byte(text))
		reply := answer{Data: data}
		if err != nil {
			reply = answer{Error: err.Error()}
		}
		if err := answers.Encode(reply); err != nil {
			panic(err)
		}
	}
}
