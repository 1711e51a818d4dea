// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

type instance struct {
	ID        string           `json:"id"`
	Type      string           `json:"type"`
	Region    string           `json:"region"`
	Zone      string           `json:"zone"`
	State     string           `json:"state"`
	Addresses []v1.NodeAddress `json:"addresses"`
}

// find asks the cloud once: by id where the Node has one, by name otherwise.
func (c *cloud) find(ctx context.Context, node *v1.Node) (*instance, error) {
	if node.Spec.ProviderID == "" {
		named, err := list[instance](ctx, c.api, "/instances", url.Values{"name": {node.Name}})
		if err != nil {
			return nil, err
		}
		switch len(named) {
		case 0:
			return nil, cloudprovider.InstanceNotFound
		case 1:
			return &named[0], nil
		}
		return nil, fmt.Errorf("%d instances are named %q", len(named), node.Name)
	}
	id, err := instanceID(node.Spec.ProviderID)
	if err != nil {
		return nil, err
	}
	found := &instance{}
	err = c.call(ctx, http.MethodGet, "/instances/"+id, nil, nil, found)
	var refused *failure
	if errors.As(err, &refused) && refused.Error_.Code == "instance_not_found" {
		return nil, cloudprovider.InstanceNotFound
	}
	return found, err
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := c.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return false, err
	}
	return found.State != "running", nil
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	found, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID:    fmt.Sprintf("sim://%s/%s", found.Region, found.ID),
		InstanceType:  found.Type,
		NodeAddresses: found.Addresses,
		Zone:          found.Zone,
		Region:        found.Region,
	}, nil
}
