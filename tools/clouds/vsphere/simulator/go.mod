module outoftree.dev/ccm/vsphere-simulator

go 1.24.0

require github.com/vmware/govmomi v0.54.0

require github.com/google/uuid v1.6.0 // indirect
