// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"

	cloudprovider "k8s.io/cloud-provider"
)

type route struct {
	ID          string `json:"id"`
	Destination string `json:"destination"`
	InstanceID  string `json:"instance_id"`
	State       string `json:"state"`
}

func (c *cloud) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	names, err := c.nodeNames()
	if err != nil {
		return nil, err
	}
	rows, err := list[route](ctx, c.api, "/routes", nil)
	if err != nil {
		return nil, err
	}
	found := make([]*cloudprovider.Route, 0, len(rows))
	for _, row := range rows {
		name, known := names[row.InstanceID]
		found = append(found, &cloudprovider.Route{
			Name:            row.ID,
			TargetNode:      name,
			DestinationCIDR: row.Destination,
			Blackhole:       row.State == "blackhole" || !known,
		})
	}
	return found, nil
}

func (c *cloud) CreateRoute(ctx context.Context, _ string, _ string, wanted *cloudprovider.Route) error {
	node, err := c.nodes.Get(string(wanted.TargetNode))
	if err != nil {
		return err
	}
	id, err := instanceID(node.Spec.ProviderID)
	if err != nil {
		return err
	}
	body := map[string]string{"destination": wanted.DestinationCIDR, "instance_id": id}
	return c.call(ctx, http.MethodPost, "/routes", nil, body, nil)
}

func (c *cloud) DeleteRoute(ctx context.Context, _ string, unwanted *cloudprovider.Route) error {
	return c.call(ctx, http.MethodDelete, "/routes/"+unwanted.Name, nil, nil, nil)
}
