// SPDX-License-Identifier: Apache-2.0

// A CSI driver for the test bed. Its volumes are empty folders, so nothing is mounted. But like a cloud's disk, a
// volume is attached to one machine at a time: the controller refuses to attach it to a second one. With --node, the
// program is that node's plug-in and registers with its kubelet. Without --node, it is the controller beside
// csi-attacher.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const name = "volumes.bed.outoftree.dev"

type identity struct {
	csi.UnimplementedIdentityServer
}

func (identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: name, VendorVersion: "1"}, nil
}

func (identity) GetPluginCapabilities(
	context.Context, *csi.GetPluginCapabilitiesRequest,
) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	capability := &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: service}}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{capability}}, nil
}

func (identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// A controller knows which machine has which volume.
type controller struct {
	csi.UnimplementedControllerServer
	lock     sync.Mutex
	attached map[string]string
}

func (*controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	rpc := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	capability := &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{capability}}, nil
}

func (c *controller) ControllerPublishVolume(
	_ context.Context, request *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	volume, node := request.GetVolumeId(), request.GetNodeId()
	if other, ok := c.attached[volume]; ok && other != node {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to %s", volume, other)
	}
	log.Printf("volume %s is attached to %s", volume, node)
	c.attached[volume] = node
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (c *controller) ControllerUnpublishVolume(
	_ context.Context, request *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	volume, node := request.GetVolumeId(), request.GetNodeId()
	if c.attached[volume] == node {
		log.Printf("volume %s is detached from %s", volume, node)
		delete(c.attached, volume)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// A node is a machine that volumes are attached to, by the name of its Node.
type node struct {
	csi.UnimplementedNodeServer
	name string
}

func (n node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name}, nil
}

func (node) NodeGetCapabilities(
	context.Context, *csi.NodeGetCapabilitiesRequest,
) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (node) NodePublishVolume(
	_ context.Context, request *csi.NodePublishVolumeRequest,
) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, os.MkdirAll(request.GetTargetPath(), 0o755)
}

func (node) NodeUnpublishVolume(
	_ context.Context, request *csi.NodeUnpublishVolumeRequest,
) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, os.RemoveAll(request.GetTargetPath())
}

// A registrar answers the kubelet, which looks for sockets of plug-ins.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

func (r registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (registrar) NotifyRegistrationStatus(
	_ context.Context, answer *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !answer.PluginRegistered {
		log.Fatalf("the kubelet refuses the plug-in: %s", answer.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(socket string, server *grpc.Server) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		log.Fatal(err)
	}
	if err := os.RemoveAll(socket); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(listener))
}

func main() {
	of := flag.String("node", "", "the name of the Node whose plug-in this is")
	socket := flag.String("socket", "", "where to listen")
	registers := flag.String("registers", "", "the socket by which the kubelet finds the plug-in")
	flag.Parse()

	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, identity{})
	if *of == "" {
		csi.RegisterControllerServer(server, &controller{attached: map[string]string{}})
	} else {
		csi.RegisterNodeServer(server, node{name: *of})
		registering := grpc.NewServer()
		registration.RegisterRegistrationServer(registering, registrar{endpoint: *socket})
		go serve(*registers, registering)
	}
	serve(*socket, server)
}
