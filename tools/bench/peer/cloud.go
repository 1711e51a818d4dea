// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"regexp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

const providerName = "sim"

var providerID = regexp.MustCompile(`^sim://([a-z0-9][a-z0-9-]*)/(i-[0-9a-f]{12})$`)

// cloud is the provider. It reads Nodes from the framework's informer, so that routes cost no requests for Nodes.
type cloud struct {
	*api
	nodes listers.NodeLister
}

func newCloud(file io.Reader) (cloudprovider.Interface, error) {
	made, err := newAPI(file)
	if err != nil {
		return nil, err
	}
	return &cloud{api: made}, nil
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

func (c *cloud) SetInformers(factory informers.SharedInformerFactory) {
	c.nodes = factory.Core().V1().Nodes().Lister()
}

func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)       { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)   { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)               { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)         { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)             { return c, true }
func (c *cloud) ProviderName() string                             { return providerName }
func (c *cloud) HasClusterID() bool                               { return true }

// instanceID is the cloud's id in a providerID.
func instanceID(text string) (string, error) {
	parts := providerID.FindStringSubmatch(text)
	if parts == nil {
		return "", fmt.Errorf("providerID %q is not of the form sim://REGION/i-…", text)
	}
	return parts[2], nil
}

// nodeNames are the Nodes' names by their instance's id.
func (c *cloud) nodeNames() (map[string]types.NodeName, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	found := make(map[string]types.NodeName, len(nodes))
	for _, node := range nodes {
		if id, err := instanceID(node.Spec.ProviderID); err == nil {
			found[id] = types.NodeName(node.Name)
		}
	}
	return found, nil
}

func internalIP(node *v1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == v1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
