// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/service/helpers"
)

// poll is how often providers look whether a load balancer is ready.
const poll = 500 * time.Millisecond

type loadBalancer struct {
	ID    string `json:"id"`
	State string `json:"state"`
	IP    string `json:"ip"`
}

type port struct {
	Name     string      `json:"name"`
	Protocol v1.Protocol `json:"protocol"`
	Port     int32       `json:"port"`
	NodePort int32       `json:"node_port"`
}

type target struct {
	InstanceID string `json:"instance_id"`
	Address    string `json:"address"`
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (c *cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	found, err := c.named(ctx, cluster, service)
	if err != nil || found == nil {
		return nil, false, err
	}
	return status(found), true, nil
}

// EnsureLoadBalancer writes the desired state, and waits until the cloud has applied it.
func (c *cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	found, err := c.named(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	ranges, err := helpers.GetLoadBalancerSourceRanges(service)
	if err != nil {
		return nil, err
	}
	sources := []string{} // everybody
	if !helpers.IsAllowAll(ranges) {
		sources = ranges.StringSlice()
	}
	body := map[string]any{
		"ports":         ports(service),
		"targets":       targets(nodes),
		"source_ranges": sources,
		"health_check":  healthCheck(service),
	}
	if found == nil {
		body["name"] = c.GetLoadBalancerName(ctx, cluster, service)
		body["tags"] = map[string]string{"cluster": cluster, "service_uid": string(service.UID)}
		found = &loadBalancer{}
		err = c.call(ctx, http.MethodPost, "/load-balancers", nil, body, found)
	} else {
		found, err = c.write(ctx, http.MethodPatch, "/load-balancers/"+found.ID, body, found)
	}
	if err != nil {
		return nil, err
	}
	if found, err = c.ready(ctx, found); err != nil {
		return nil, err
	}
	return status(found), nil
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	found, err := c.named(ctx, cluster, service)
	if err != nil {
		return err
	}
	if found == nil {
		return fmt.Errorf("there is no load balancer of %s/%s", service.Namespace, service.Name)
	}
	body := map[string]any{"targets": targets(nodes)}
	if found, err = c.write(ctx, http.MethodPut, "/load-balancers/"+found.ID+"/targets", body, found); err != nil {
		return err
	}
	_, err = c.ready(ctx, found)
	return err
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	found, err := c.named(ctx, cluster, service)
	if err != nil || found == nil {
		return err
	}
	if _, err = c.write(ctx, http.MethodDelete, "/load-balancers/"+found.ID, nil, found); err != nil {
		return err
	}
	for found != nil {
		if err = pause(ctx); err != nil {
			return err
		}
		if found, err = c.named(ctx, cluster, service); err != nil {
			return err
		}
	}
	return nil
}

// named is the load balancer of the Service, or nil.
func (c *cloud) named(ctx context.Context, cluster string, service *v1.Service) (*loadBalancer, error) {
	query := url.Values{"name": {c.GetLoadBalancerName(ctx, cluster, service)}}
	found, err := list[loadBalancer](ctx, c.api, "/load-balancers", query)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// write sends a change. While the cloud works on an earlier one, it waits.
func (c *cloud) write(ctx context.Context, method, path string, body any, known *loadBalancer) (*loadBalancer, error) {
	for {
		written := &loadBalancer{}
		err := c.call(ctx, method, path, nil, body, written)
		var refused *failure
		if !errors.As(err, &refused) || refused.Error_.Code != "busy" {
			return written, err
		}
		if _, err := c.ready(ctx, known); err != nil {
			return nil, err
		}
	}
}

// ready waits until the load balancer is active.
func (c *cloud) ready(ctx context.Context, balancer *loadBalancer) (*loadBalancer, error) {
	for balancer.State != "active" {
		if balancer.State == "error" {
			return nil, fmt.Errorf("load balancer %s is in error", balancer.ID)
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
		id := balancer.ID
		balancer = &loadBalancer{}
		if err := c.call(ctx, http.MethodGet, "/load-balancers/"+id, nil, nil, balancer); err != nil {
			return nil, err
		}
	}
	return balancer, nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(poll):
		return nil
	}
}

func status(balancer *loadBalancer) *v1.LoadBalancerStatus {
	mode := v1.LoadBalancerIPModeProxy
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: balancer.IP, IPMode: &mode}}}
}

func ports(service *v1.Service) []port {
	made := make([]port, 0, len(service.Spec.Ports))
	for _, each := range service.Spec.Ports {
		made = append(made, port{each.Name, each.Protocol, each.Port, each.NodePort})
	}
	return made
}

// healthCheck is nil unless the Service has a node port for it.
func healthCheck(service *v1.Service) any {
	if _, number := helpers.GetServiceHealthCheckPathPort(service); number != 0 {
		return map[string]any{"node_port": number}
	}
	return nil
}

func targets(nodes []*v1.Node) []target {
	made := make([]target, 0, len(nodes))
	for _, node := range nodes {
		if id, err := instanceID(node.Spec.ProviderID); err == nil {
			if address := internalIP(node); address != "" {
				made = append(made, target{id, address})
			}
		}
	}
	return made
}
