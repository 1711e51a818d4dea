// SPDX-License-Identifier: Apache-2.0

// Command peer is the upstream cloud-controller-manager framework with a provider of the simulated cloud: what ours is
// measured against. The framework is untouched; only the provider (cloud.go and the files beside it) is here.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that a real one has
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
)

func main() {
	cloudprovider.RegisterCloudProvider(providerName, newCloud)
	given, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("options: %v", err)
	}
	command := app.NewCloudControllerManagerCommand(given, open, app.DefaultInitFuncConstructors,
		names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)
	os.Exit(cli.Run(command))
}

func open(completed *config.CompletedConfig) cloudprovider.Interface {
	wanted := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(wanted.Name, wanted.CloudConfigFile)
	if err != nil || cloud == nil {
		klog.Fatalf("--cloud-provider=%s --cloud-config=%s: %v", wanted.Name, wanted.CloudConfigFile, err)
	}
	return cloud
}
