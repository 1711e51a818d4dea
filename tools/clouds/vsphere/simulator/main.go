// SPDX-License-Identifier: Apache-2.0

// A vCenter on loopback: govmomi's simulator. Tests change its machines over HTTP.
//
// SOAP and the REST API of tags are the simulator's own, with TLS. POST /shape changes a machine: what its guest tools
// report, its UUID, its guest system, its processors and memory, and its options.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"

	"crypto/tls"

	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// Shape is what a request sets on one machine. Properties that it does not name stay as they are.
type Shape struct {
	Machine  string              `json:"machine"`
	UUID     *string             `json:"uuid"`
	HostName *string             `json:"hostName"`
	Nics     *[]Nic              `json:"nics"`
	Guest    *string             `json:"guestId"`
	CPUs     *int32              `json:"cpus"`
	Memory   *int32              `json:"memoryMB"`
	Metadata []types.OptionValue `json:"options"`
}

// Nic is a network interface as the guest tools report it.
type Nic struct {
	Network   string   `json:"network"`
	Device    int32    `json:"device"`
	Addresses []string `json:"addresses"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address of the vCenter")
	control := flag.String("control", "127.0.0.1:0", "address of the control port")
	user := flag.String("user", "ccm", "the only user")
	password := flag.String("password", "", "the user's password")
	datacenters := flag.Int("datacenters", 1, "how many datacenters")
	machines := flag.Int("machines", 4, "how many machines in each resource pool")
	guests := []string{}
	flag.Func("guest", "NAME=ADDRESS: what the guest tools of one machine report; give it again for the next machine", func(text string) error {
		if !strings.Contains(text, "=") {
			return fmt.Errorf("%q has no =", text)
		}
		guests = append(guests, text)
		return nil
	})
	flag.Parse()

	model := simulator.VPX()
	model.Datacenter, model.Machine = *datacenters, *machines
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	all := model.Map().All("VirtualMachine")
	if len(guests) > len(all) {
		log.Fatalf("%d guests for %d machines: set -machines", len(guests), len(all))
	}
	for index, guest := range guests {
		name, address, _ := strings.Cut(guest, "=")
		nics := []Nic{{Network: "VM Network", Device: 4000, Addresses: []string{address}}}
		apply(Shape{HostName: &name, Nics: &nics}, &all[index].(*simulator.VirtualMachine).VirtualMachine)
	}
	model.Service.TLS = new(tls.Config)
	model.Service.RegisterEndpoints = true
	model.Service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, *password)}
	server := model.Service.NewServer()

	http.HandleFunc("/shape", func(w http.ResponseWriter, r *http.Request) {
		var shape Shape
		if err := json.NewDecoder(r.Body).Decode(&shape); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		reference := types.ManagedObjectReference{Type: "VirtualMachine", Value: shape.Machine}
		vm, ok := model.Map().Get(reference).(*simulator.VirtualMachine)
		if !ok {
			http.Error(w, "no such machine", http.StatusNotFound)
			return
		}
		context := model.Service.Context
		context.WithLock(vm, func() { apply(shape, &vm.VirtualMachine) })
	})
	port, err := net.Listen("tcp", *control)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("{\"vcenter\": %q, \"control\": %q}\n", server.URL.Host, port.Addr())
	log.Fatal(http.Serve(port, nil))
}

func apply(shape Shape, vm *mo.VirtualMachine) {
	if shape.UUID != nil {
		vm.Config.Uuid, vm.Summary.Config.Uuid = *shape.UUID, *shape.UUID
	}
	if shape.HostName != nil {
		vm.Guest.HostName = *shape.HostName
		if vm.Summary.Guest != nil {
			vm.Summary.Guest.HostName = *shape.HostName
		}
	}
	if shape.Nics != nil {
		vm.Guest.Net, vm.Guest.IpAddress = nil, ""
		for _, nic := range *shape.Nics {
			if vm.Guest.IpAddress == "" && len(nic.Addresses) > 0 {
				vm.Guest.IpAddress = nic.Addresses[0]
			}
			info := types.GuestNicInfo{Network: nic.Network, DeviceConfigId: nic.Device, IpAddress: nic.Addresses, Connected: true}
			vm.Guest.Net = append(vm.Guest.Net, info)
		}
	}
	if shape.Guest != nil {
		vm.Config.GuestId, vm.Summary.Config.GuestId = *shape.Guest, *shape.Guest
	}
	if shape.CPUs != nil {
		vm.Summary.Config.NumCpu = *shape.CPUs
	}
	if shape.Memory != nil {
		vm.Summary.Config.MemorySizeMB = *shape.Memory
	}
	for _, option := range shape.Metadata {
		vm.Config.ExtraConfig = append(vm.Config.ExtraConfig, &types.OptionValue{Key: option.Key, Value: option.Value})
	}
}
