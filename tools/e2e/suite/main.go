// SPDX-License-Identifier: Apache-2.0

// Runs Kubernetes' end-to-end specs of SIG Network, as upstream's own test main does, and one spec of Nodes. It is a
// program and not a Go test, so that the bed compiles and caches it like all its programs.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	conformancetestdata "k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	testfixtures "k8s.io/kubernetes/test/fixtures"

	// The labels of specs.
	_ "k8s.io/kubernetes/test/e2e/feature"
	// The specs.
	_ "k8s.io/kubernetes/test/e2e/network"
	// What the framework does before and after each of them.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
)

var results = flag.String("results", "", "append a line of JSON for each spec that was selected to this file")

// A result is a line of the table.
type result struct {
	Name     string  `json:"name"`
	State    string  `json:"state"`
	Seconds  float64 `json:"seconds"`
	Reason   string  `json:"reason"`
	Requests int     `json:"requests"`
	Lost     int     `json:"lost"`
}

// What the specs of rolling updates print after each update.
var (
	requests = regexp.MustCompile(`Load Balancer total HTTP requests: (\d+)`)
	lost     = regexp.MustCompile(`(?:Network|HTTP) errors: (\d+)`)
)

func sum(pattern *regexp.Regexp, output string) int {
	total := 0
	for _, match := range pattern.FindAllStringSubmatch(output, -1) {
		number, _ := strconv.Atoi(match[1])
		total += number
	}
	return total
}

func record(report ginkgo.SpecReport) {
	// A spec that was not selected is skipped as well, without a reason.
	if report.State.Is(types.SpecStatePending) || report.State.Is(types.SpecStateSkipped) && report.Failure.Message == "" {
		return
	}
	output := report.CapturedGinkgoWriterOutput
	line, err := json.Marshal(result{
		report.FullText(), report.State.String(), report.RunTime.Seconds(), report.Failure.Message,
		sum(requests, output), sum(lost, output),
	})
	if err == nil {
		err = appendLine(*results, line)
	}
	framework.ExpectNoError(err, "writing the result to %s", *results)
}

func appendLine(name string, line []byte) error {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(append(line, '\n'))
	return err
}

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	testing.Init()
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "arguments that are not flags: %s\n", flag.Args())
		os.Exit(2)
	}
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(testfixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformancetestdata.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	// This must come after AfterReadingAllFlags: its dry run, which lists all specs, discards functions for reports.
	if *results != "" {
		ginkgo.ReportAfterEach(record)
	}
	matches := func(pattern, name string) (bool, error) { return regexp.MatchString(pattern, name) }
	testing.Main(matches, []testing.InternalTest{{Name: "E2E", F: e2e.RunE2ETests}}, nil, nil)
}
